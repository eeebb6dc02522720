#include "server/jobs/job_manager.h"

#include <cassert>
#include <utility>

#include "absl/time/clock.h"
#include "server/failpoint/failpoint.h"
#include "server/jobs/lifecycle/job_history.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/steady_time.h"

namespace sparsefw::server {
namespace {

constexpr int kGarbagePageSize = 1000;
constexpr int kDeleteAttempts = 5;

int JobsAtOnce(const JobManagerOptions& options) {
  int jobs = options.workers;
  for (const PoolDevice& device : options.devices) jobs += device.streams;
  return jobs;
}

absl::Status NotFinished(const Job& job) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "JOB_NOT_FINISHED",
                "%s has not ended; cancel it before deleting it, or wait", job.name);
}

}  // namespace

JobManager::JobManager(const JobManagerOptions& options, JobStore* store, JobRunner* runner,
                       JobListener* listener)
    : max_attempts_(options.max_attempts),
      scheduler_(options, *options.clock),
      parts_{*options.clock, *store, *runner, *listener, table_, scheduler_},
      announcer_(parts_),
      states_(parts_, announcer_),
      submission_(options, options.limits_of, parts_, states_,
                  [this](std::string_view name) { return Get(name); }),
      workers_(JobsAtOnce(options), parts_, states_, announcer_) {
  assert(options.workers >= 1 && options.max_queued_jobs >= 1);
}

JobManager::~JobManager() { Drain(absl::ZeroDuration()); }

absl::StatusOr<Job> JobManager::Submit(const JobSpec& spec, std::string_view request_id,
                                       const RequestDigest& digest, const Owner& owner,
                                       bool validate_only) {
  if (validate_only) return submission_.Validate(spec, owner);
  return submission_.Submit(spec, request_id, digest, owner);
}

absl::StatusOr<bool> JobManager::HasRequest(const std::string& tenant, const std::string& id) {
  if (id.empty()) return false;
  SPARSEFW_ASSIGN_OR_RETURN(const auto record, parts_.store.FindRequest(tenant, id));
  return record.has_value();
}

absl::StatusOr<Job> JobManager::Get(std::string_view name) {
  const auto active = table_.Find(name);
  if (active == nullptr) return parts_.store.Get(name);
  Job job = active->Read();
  if (job.state == JobState::kQueued) job.queue_position = scheduler_.Position(name);
  return job;
}

// Another tenant's job takes the way of one that never was, whether it runs or has ended.
absl::StatusOr<bool> JobManager::Has(std::string_view name, std::string_view tenant) {
  const auto active = table_.Find(name);
  if (active != nullptr && active->tenant == tenant) return true;
  return parts_.store.Has(name, tenant);
}

absl::StatusOr<JobStore::Page> JobManager::List(const JobFilter& filter, int page_size,
                                                std::string_view page_token) {
  SPARSEFW_ASSIGN_OR_RETURN(JobStore::Page page, parts_.store.List(filter, page_size, page_token));
  std::vector<std::string> queued;
  for (const Job& job : page.jobs) {
    if (job.state == JobState::kQueued) queued.push_back(job.name);
  }
  const auto positions = scheduler_.Positions(queued);
  for (Job& job : page.jobs) {
    if (job.state == JobState::kRunning) {
      // The store has progress of up to a second ago.
      if (const auto active = table_.Find(job.name)) active->ReadProgress(&job);
    }
    const auto position = positions.find(job.name);
    if (job.state == JobState::kQueued && position != positions.end()) {
      job.queue_position = position->second;
    }
  }
  return page;
}

absl::StatusOr<Job> JobManager::Cancel(std::string_view name) {
  if (const auto active = table_.Find(name)) {
    SPARSEFW_RETURN_IF_ERROR(states_.Cancel(active));
  }
  return Get(name);
}

absl::Status JobManager::Delete(std::string_view name) {
  absl::StatusOr<Job> job = Get(name);
  if (HasReason(job.status(), kJobDamaged)) {
    Job unreadable;
    unreadable.name = name;
    return RemoveEnded(unreadable);
  }
  if (!job.ok()) return job.status();
  if (!IsTerminal(job->state)) return NotFinished(*job);
  return RemoveEnded(*job);
}

// Only the caller that deletes the job from the store discards its results. On a full disk they go
// first, since the store needs room to forget the job; if that fails all the same, the job is left
// without them. Their blocks are free a little later (FileRemover): the waits were not measured.
absl::Status JobManager::RemoveEnded(const Job& job) {
  absl::Status removed = parts_.store.Delete(job.name);
  for (int attempt = 0; absl::IsResourceExhausted(removed) && attempt < kDeleteAttempts;
       ++attempt) {
    DiscardResults(parts_, job);
    absl::SleepFor(attempt * absl::Milliseconds(20));
    removed = parts_.store.Delete(job.name);
  }
  SPARSEFW_RETURN_IF_ERROR(removed);
  Failpoint("job.deleted");
  table_.ForgetUnstored(job.name);
  DiscardResults(parts_, job);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<EventQueue>> JobManager::Watch(std::string_view name,
                                                              int64_t after_revision,
                                                              std::function<void()> wake) {
  if (const auto active = table_.Find(name)) {
    return states_.Watch(*active, after_revision, std::move(wake));
  }
  SPARSEFW_ASSIGN_OR_RETURN(const Job job, parts_.store.Get(name));
  SPARSEFW_ASSIGN_OR_RETURN(std::vector<JobEvent> first, EventsAfter(job, after_revision));
  return std::make_shared<EventQueue>(std::move(first), std::move(wake));
}

void JobManager::Drain(absl::Duration grace) {
  const absl::Time deadline = parts_.clock.SteadyNow() + grace;
  submission_.StopAccepting();
  scheduler_.StopStarting();
  bool stopped = false;
  while (true) {
    const int64_t seen = table_.version();
    if (StopWaiting() && table_.version() == seen) {
      // Where that fails, the next process runs these jobs again.
      if (parts_.store.durable()) RetryUnstored();
      return announcer_.Flush();
    }
    if (!stopped && parts_.clock.SteadyNow() >= deadline) {
      stopped = true;
      StopRunning();
    }
    table_.WaitForChange(seen, parts_.clock, stopped ? absl::InfiniteFuture() : deadline);
  }
}

// Cancels the jobs that have not started, or suspends them where the store is durable; also those
// that a worker is about to start. True: nothing runs.
bool JobManager::StopWaiting() {
  if (!parts_.store.durable()) {
    for (const auto& queued : scheduler_.Queued()) states_.Cancel(queued).IgnoreError();
    return table_.Idle();
  }
  for (const auto& active : table_.NotEnded()) states_.Suspend(active);
  return table_.NothingRuns();
}

void JobManager::StopRunning() {
  for (const auto& active : table_.NotEnded()) {
    if (parts_.store.durable()) {
      states_.Stop(active, ActiveJob::StopReason::kInterrupted);
    } else {
      states_.Cancel(active).IgnoreError();
    }
  }
}

// Stops when a whole page could not be removed: it would come again.
void JobManager::CollectGarbage() {
  RetryUnstored();
  const absl::Time now = ExpiryNow(parts_.clock.Now(), parts_.clock.SteadyNow());
  int removed = 0;
  do {
    removed = 0;
    const auto expired = parts_.store.ListExpired(now, kGarbagePageSize);
    if (!expired.ok()) {
      parts_.listener.OnBackgroundError(Job(), expired.status());
      return;
    }
    for (const Job& job : *expired) {
      const absl::Status status = RemoveEnded(job);
      // NotFound: a client has deleted it meanwhile.
      if (status.ok() || absl::IsNotFound(status)) {
        ++removed;
      } else {
        parts_.listener.OnBackgroundError(job, status);
      }
    }
    if (expired->size() < static_cast<size_t>(kGarbagePageSize)) return;
  } while (removed > 0);
}

void JobManager::RetryUnstored() {
  for (const auto& active : table_.Unstored()) {
    const absl::Status stored = states_.StoreEnd(active);
    if (!stored.ok()) parts_.listener.OnBackgroundError(*active->Current(), stored);
  }
}

}  // namespace sparsefw::server
