#include "server/jobs/job_manager.h"

#include <algorithm>
#include <cassert>
#include <exception>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/jobs/job_history.h"
#include "server/jobs/job_manager_impl.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

constexpr int kGarbagePageSize = 1000;

class SilentListener final : public JobListener {
 public:
  void OnAccepted(const Job&) override {}
  void OnStarted(const Job&) override {}
  void OnEnded(const Job&) override {}
};

JobListener& Silent() {
  static SilentListener listener;
  return listener;
}

// The listener is one more watcher of each job, so what it hears of a job
// comes in order too.
class ListenerAdapter final : public JobWatcher {
 public:
  explicit ListenerAdapter(JobListener& listener) : listener_(listener) {}

  void OnJob(Event event, const Job& job) override {
    if (event == Event::kSnapshot) {
      listener_.OnAccepted(job);
    } else if (job.state == JobState::kRunning) {
      listener_.OnStarted(job);
    } else {
      listener_.OnEnded(job);
    }
  }

 private:
  JobListener& listener_;
};

std::mt19937_64 SeededFromTheSystem() {
  std::random_device device;
  std::seed_seq seed{device(), device(), device(), device()};
  return std::mt19937_64(seed);
}

absl::Status NotFinished(const Job& job) {
  return WithReason(absl::FailedPreconditionError(absl::StrFormat(
                        "%s has not ended; cancel it before deleting it, or wait", job.name)),
                    "JOB_NOT_FINISHED");
}

}  // namespace

std::unique_ptr<JobManager> JobManager::Create(JobManagerOptions options, JobStore* store,
                                               JobRunner* runner, JobListener* listener) {
  assert(options.workers >= 1 && options.max_queued_jobs >= 1);
  return std::make_unique<JobManagerImpl>(options, store, runner, listener);
}

JobManagerImpl::JobManagerImpl(const JobManagerOptions& options, JobStore* store, JobRunner* runner,
                               JobListener* listener)
    : options_(options),
      clock_(options.clock != nullptr ? *options.clock : RealClock()),
      store_(*store),
      runner_(*runner),
      listener_(listener != nullptr ? *listener : Silent()),
      listener_adapter_(std::make_shared<ListenerAdapter>(listener_)),
      pool_(options.devices),
      random_(SeededFromTheSystem()) {
  int jobs_at_once = options.workers;
  for (const PoolDevice& device : options.devices) jobs_at_once += device.streams;
  threads_.reserve(static_cast<size_t>(jobs_at_once) + 1);
  threads_.emplace_back([this] { DeadlineLoop(); });
  for (int i = 0; i < jobs_at_once; ++i) threads_.emplace_back([this] { WorkerLoop(); });
}

JobManagerImpl::~JobManagerImpl() {
  Drain(absl::ZeroDuration());
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    work_.NotifyAll();
    deadline_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<Job> JobManagerImpl::Get(std::string_view name) {
  if (const ActiveJobPtr active = FindActive(name)) {
    MutexLock lock(active->mutex);
    return WithPosition(*active->job);
  }
  return store_.Get(name);
}

absl::StatusOr<JobStore::Page> JobManagerImpl::List(const JobFilter& filter, int page_size,
                                                    std::string_view page_token) {
  SPARSEFW_ASSIGN_OR_RETURN(JobStore::Page page, store_.List(filter, page_size, page_token));
  std::map<std::string, int, std::less<>> positions;
  {
    MutexLock lock(mutex_);
    positions = queue_.Positions();
  }
  for (Job& job : page.jobs) {
    const auto position = positions.find(job.name);
    if (job.state == JobState::kQueued && position != positions.end()) {
      job.queue_position = position->second;
    }
  }
  return page;
}

absl::StatusOr<Job> JobManagerImpl::Cancel(std::string_view name) {
  if (const ActiveJobPtr active = FindActive(name)) CancelActive(active);
  return Get(name);
}

absl::Status JobManagerImpl::Delete(std::string_view name) {
  SPARSEFW_ASSIGN_OR_RETURN(const Job job, Get(name));
  if (!IsTerminal(job.state)) return NotFinished(job);
  return RemoveEnded(job);
}

// Whoever takes the job out of the store, and no other, discards its results.
absl::Status JobManagerImpl::RemoveEnded(const Job& job) {
  SPARSEFW_RETURN_IF_ERROR(store_.Delete(job.name));
  {
    MutexLock lock(mutex_);
    unstored_.erase(job.name);
  }
  Discard(job);
  return absl::OkStatus();
}

void JobManagerImpl::Discard(const Job& job) {
  try {
    runner_.Discard(job);
  } catch (const std::exception& error) {
    listener_.OnBackgroundError(
        job, absl::InternalError(absl::StrFormat("discarding the results of %s failed: %s",
                                                 job.name, error.what())));
  } catch (...) {
    listener_.OnBackgroundError(
        job, absl::InternalError(absl::StrFormat(
                 "discarding the results of %s failed with an unknown exception", job.name)));
  }
}

absl::StatusOr<int64_t> JobManagerImpl::Watch(std::string_view name,
                                              std::shared_ptr<JobWatcher> watcher,
                                              int64_t after_revision) {
  auto channel = std::make_shared<EventChannel>(std::move(watcher));
  const auto push = [&](const Job& job) {
    for (JobVersion& version : VersionsAfter(job, after_revision)) {
      channel->Push(version.event, std::make_shared<const Job>(std::move(version.job)));
    }
  };
  const ActiveJobPtr active = FindActive(name);
  if (active != nullptr) {
    MutexLock lock(active->mutex);
    push(WithPosition(*active->job));
    active->watchers.push_back(channel);
  } else {
    SPARSEFW_ASSIGN_OR_RETURN(const Job job, store_.Get(name));
    push(job);
  }
  channel->Open();
  MutexLock lock(mutex_);
  const int64_t id = ++last_subscription_;
  subscriptions_.emplace(id, Subscription{std::move(channel), active});
  return id;
}

void JobManagerImpl::Unwatch(int64_t id) {
  Subscription subscription;
  {
    MutexLock lock(mutex_);
    const auto found = subscriptions_.find(id);
    if (found == subscriptions_.end()) return;
    subscription = std::move(found->second);
    subscriptions_.erase(found);
  }
  if (subscription.active != nullptr) {
    MutexLock lock(subscription.active->mutex);
    std::erase(subscription.active->watchers, subscription.channel);
  }
  subscription.channel->Close();
}

void JobManagerImpl::StopAccepting() {
  MutexLock lock(mutex_);
  accepting_ = false;
}

void JobManagerImpl::Drain(absl::Duration grace) {
  const absl::Time deadline = clock_.Now() + grace;
  bool stopped = false;
  mutex_.Lock();
  accepting_ = false;
  starting_ = false;
  while (slots_ > 0 || ending_ > 0 || !active_.empty()) {
    const bool stop = !stopped && clock_.Now() >= deadline;
    std::vector<ActiveJobPtr> cancelled = queue_.All();
    if (stop) {
      for (const auto& [name, active] : active_) cancelled.push_back(active);
      stopped = true;
    }
    if (cancelled.empty()) {
      clock_.WaitUntil(progress_, mutex_, stopped ? absl::InfiniteFuture() : deadline);
      continue;
    }
    mutex_.Unlock();
    for (const ActiveJobPtr& active : cancelled) CancelActive(active);
    cancelled.clear();
    mutex_.Lock();
  }
  mutex_.Unlock();
}

void JobManagerImpl::CollectGarbage() {
  RetryUnstored();
  const JobFilter ended{{JobState::kSucceeded, JobState::kFailed, JobState::kCancelled}, {}};
  const absl::Time now = clock_.Now();
  std::string page_token;
  do {
    const auto page = store_.List(ended, kGarbagePageSize, page_token);
    if (!page.ok()) {
      listener_.OnBackgroundError(Job(), page.status());
      return;
    }
    for (const Job& job : page->jobs) {
      if (job.expire_time > now) continue;
      const absl::Status removed = RemoveEnded(job);
      // NotFound: somebody else was faster.
      if (!removed.ok() && !absl::IsNotFound(removed)) listener_.OnBackgroundError(job, removed);
    }
    page_token = page->next_page_token;
  } while (!page_token.empty());
}

void JobManagerImpl::RetryUnstored() {
  std::map<std::string, ActiveJobPtr, std::less<>> unstored;
  {
    MutexLock lock(mutex_);
    unstored = unstored_;
  }
  for (const auto& [name, active] : unstored) {
    active->mutex.Lock();
    const std::shared_ptr<const Job> job = active->job;
    active->mutex.Unlock();
    const absl::Status stored = store_.Update(*job);
    if (!stored.ok()) {
      listener_.OnBackgroundError(*job, stored);
      continue;
    }
    MutexLock lock(mutex_);
    unstored_.erase(name);
  }
}

int64_t JobManagerImpl::queued() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(queue_.size());
}

int64_t JobManagerImpl::running() const {
  MutexLock lock(mutex_);
  return running_;
}

int64_t JobManagerImpl::working_bytes() const {
  MutexLock lock(mutex_);
  return working_bytes_;
}

std::vector<DeviceUsage> JobManagerImpl::devices() const {
  MutexLock lock(mutex_);
  return pool_.usage();
}

JobManagerImpl::ActiveJobPtr JobManagerImpl::FindActive(std::string_view name) const {
  MutexLock lock(mutex_);
  if (const auto found = active_.find(name); found != active_.end()) return found->second;
  const auto unstored = unstored_.find(name);
  return unstored == unstored_.end() ? nullptr : unstored->second;
}

Job JobManagerImpl::WithPosition(Job job) const {
  if (job.state == JobState::kQueued) {
    MutexLock lock(mutex_);
    job.queue_position = queue_.Position(job.name);
  }
  return job;
}

}  // namespace sparsefw::server
