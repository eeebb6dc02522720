#include "server/jobs/job_manager.h"

#include <cassert>
#include <exception>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/jobs/job_manager_impl.h"
#include "server/jobs/lifecycle/job_history.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

constexpr int kGarbagePageSize = 1000;

int JobsAtOnce(const JobManagerOptions& options) {
  int jobs = options.workers;
  for (const PoolDevice& device : options.devices) jobs += device.streams;
  return jobs;
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
    : clock_(options.clock != nullptr ? *options.clock : RealClock()),
      store_(*store),
      runner_(*runner),
      listener_(*listener),
      scheduler_({options.workers, options.working_memory_bytes, options.devices}, clock_),
      states_({clock_, store_, listener_, table_, scheduler_}),
      submission_(options.max_queued_jobs, {clock_, store_, runner_, table_, scheduler_, states_,
                                            [this](std::string_view name) { return Get(name); }}),
      workers_(JobsAtOnce(options), scheduler_, states_, runner_, listener_) {}

JobManagerImpl::~JobManagerImpl() { Drain(absl::ZeroDuration()); }

absl::StatusOr<Job> JobManagerImpl::Submit(const JobSpec& spec, std::string_view request_id,
                                           std::string_view fingerprint, std::string_view owner,
                                           bool validate_only) {
  if (validate_only) return submission_.Validate(spec, owner);
  return submission_.Submit(spec, request_id, fingerprint, owner);
}

absl::StatusOr<Job> JobManagerImpl::Get(std::string_view name) {
  const auto active = table_.Find(name);
  if (active == nullptr) return store_.Get(name);
  Job job = *active->Current();
  if (job.state == JobState::kQueued) job.queue_position = scheduler_.Position(name);
  return job;
}

absl::StatusOr<JobStore::Page> JobManagerImpl::List(const JobFilter& filter, int page_size,
                                                    std::string_view page_token) {
  SPARSEFW_ASSIGN_OR_RETURN(JobStore::Page page, store_.List(filter, page_size, page_token));
  const auto positions = scheduler_.Positions();
  for (Job& job : page.jobs) {
    const auto position = positions.find(job.name);
    if (job.state == JobState::kQueued && position != positions.end()) {
      job.queue_position = position->second;
    }
  }
  return page;
}

absl::StatusOr<Job> JobManagerImpl::Cancel(std::string_view name) {
  if (const auto active = table_.Find(name)) states_.Cancel(active);
  return Get(name);
}

absl::Status JobManagerImpl::Delete(std::string_view name) {
  SPARSEFW_ASSIGN_OR_RETURN(const Job job, Get(name));
  if (!IsTerminal(job.state)) return NotFinished(job);
  return RemoveEnded(job);
}

// Only the caller that deletes the job from the store discards its results.
absl::Status JobManagerImpl::RemoveEnded(const Job& job) {
  SPARSEFW_RETURN_IF_ERROR(store_.Delete(job.name));
  table_.ForgetUnstored(job.name);
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

absl::StatusOr<std::shared_ptr<EventQueue>> JobManagerImpl::Watch(std::string_view name,
                                                                  int64_t after_revision,
                                                                  std::function<void()> wake) {
  if (const auto active = table_.Find(name)) {
    return states_.Watch(*active, after_revision, std::move(wake));
  }
  SPARSEFW_ASSIGN_OR_RETURN(const Job job, store_.Get(name));
  return std::make_shared<EventQueue>(EventsAfter(job, after_revision), std::move(wake));
}

void JobManagerImpl::Drain(absl::Duration grace) {
  const absl::Time deadline = clock_.Now() + grace;
  submission_.StopAccepting();
  scheduler_.StopStarting();
  bool stopped = false;
  while (true) {
    const int64_t seen = table_.version();
    if (table_.Idle()) return;
    for (const auto& queued : scheduler_.Queued()) states_.Cancel(queued);
    if (!stopped && clock_.Now() >= deadline) {
      stopped = true;
      for (const auto& active : table_.NotEnded()) states_.Cancel(active);
    }
    table_.WaitForChange(seen, clock_, stopped ? absl::InfiniteFuture() : deadline);
  }
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
      // NotFound: a client has deleted it meanwhile.
      if (!removed.ok() && !absl::IsNotFound(removed)) listener_.OnBackgroundError(job, removed);
    }
    page_token = page->next_page_token;
  } while (!page_token.empty());
}

void JobManagerImpl::RetryUnstored() {
  for (const auto& active : table_.Unstored()) {
    const std::shared_ptr<const Job> job = active->Current();
    const absl::Status stored = store_.Update(*job);
    if (stored.ok()) {
      table_.ForgetUnstored(active->name);
    } else {
      listener_.OnBackgroundError(*job, stored);
    }
  }
}

}  // namespace sparsefw::server
