// Running jobs, ending them, and every change of state in between.
#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/jobs/job_history.h"
#include "server/jobs/job_manager_impl.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {

void JobManagerImpl::WorkerLoop() {
  while (true) {
    Placed placed = NextJob();
    if (placed.active == nullptr) return;
    RunJob(placed);
    Release(placed);
  }
}

// Ends queued jobs on time even when every worker is busy.
void JobManagerImpl::DeadlineLoop() {
  mutex_.Lock();
  while (!stopping_) {
    const std::vector<ActiveJobPtr> expired = queue_.TakeExpired(clock_.Now());
    if (expired.empty()) {
      clock_.WaitUntil(deadline_, mutex_, queue_.next_deadline());
      continue;
    }
    work_.NotifyAll();  // the first, which did not fit, may be among them
    EvictedGrams evicted;
    for (const ActiveJobPtr& active : expired) pool_.Unref(active->need.device, &evicted);
    mutex_.Unlock();
    Free(std::move(evicted));
    for (const ActiveJobPtr& active : expired) {
      active->mutex.Lock();
      const std::shared_ptr<const Job> job = active->job;
      active->mutex.Unlock();
      End(active, JobState::kQueued, DeadlinePassed(*job));
    }
    mutex_.Lock();
  }
  mutex_.Unlock();
}

void JobManagerImpl::RunJob(Placed& placed) {
  const ActiveJobPtr& active = placed.active;
  std::optional<Started> started = Start(active);
  if (!started) return;
  const Job& job = *started->job;
  absl::StatusOr<JobResult> outcome = RunPlaced(placed, job, *started->inputs);
  if (outcome.ok()) {
    outcome->queue_time = std::max(job.start_time - job.create_time, absl::ZeroDuration());
  }
  // Before anybody hears of the end: who does may delete the tensors at once.
  started->inputs.reset();
  End(active, JobState::kRunning, EndingOf(std::move(outcome)));
}

std::optional<JobManagerImpl::Started> JobManagerImpl::Start(const ActiveJobPtr& active) {
  std::optional<Ending> refused;
  Started started;
  {
    MutexLock job_lock(active->mutex);
    if (active->job->state != JobState::kQueued) return std::nullopt;
    Job next = *active->job;
    next.state = JobState::kRunning;
    next.start_time = clock_.Now();
    if (active->deadline <= next.start_time) {
      refused = DeadlinePassed(next);
    } else if (absl::Status stored = Commit(*active, std::move(next)); !stored.ok()) {
      refused = Ending{JobState::kFailed, std::move(stored), std::nullopt};
    } else {
      {
        MutexLock lock(mutex_);
        ++running_;
      }
      Push(*active, JobWatcher::Event::kStateChange);
      started = {active->job, std::move(active->inputs)};
    }
  }
  if (refused) {
    End(active, JobState::kQueued, *std::move(refused));
    return std::nullopt;
  }
  Deliver(*active);
  return started;
}

absl::StatusOr<JobResult> JobManagerImpl::CallRunner(const Job& job, ActiveJob& active,
                                                     JobRunner::Inputs& inputs) {
  const auto report = [&](const ProgressReport& progress) { Report(active, progress); };
  try {
    return runner_.Run(job, inputs, active.stop, report);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrFormat("the run failed: %s", error.what()));
  } catch (...) {
    return absl::InternalError("the run failed with an unknown exception");
  }
}

void JobManagerImpl::Report(ActiveJob& active, const ProgressReport& report) {
  std::shared_ptr<const Job> job;
  absl::Status stored;
  {
    MutexLock lock(active.mutex);
    Job next = *active.job;
    next.progress = report;
    stored = Commit(active, std::move(next));
    if (stored.ok()) Push(active, JobWatcher::Event::kProgress);
    job = active.job;
  }
  if (stored.ok()) {
    Deliver(active);
  } else {
    listener_.OnBackgroundError(*job, stored);
  }
}

void JobManagerImpl::End(const ActiveJobPtr& active, JobState from, Ending ending) {
  std::shared_ptr<const Job> job;
  absl::Status stored;
  EvictedGrams evicted;
  {
    MutexLock job_lock(active->mutex);
    if (active->job->state != from) return;
    active->inputs.reset();
    Job next = *active->job;
    next.state = ending.state;
    next.error = std::move(ending.error);
    next.result = std::move(ending.result);
    next.end_time = clock_.Now();
    next.expire_time = next.end_time + next.spec.result_ttl;
    stored = Commit(*active, std::move(next));
    job = active->job;
    {
      MutexLock lock(mutex_);
      if (from == JobState::kRunning) --running_;
      if (queue_.Remove(active->name)) pool_.Unref(active->need.device, &evicted);
      work_.NotifyAll();  // it may have been the first, which did not fit
      active_.erase(active->name);
      if (!stored.ok()) unstored_.emplace(active->name, active);
      ++ending_;
    }
    Push(*active, JobWatcher::Event::kStateChange);
  }
  Free(std::move(evicted));
  Deliver(*active);
  if (!stored.ok()) listener_.OnBackgroundError(*job, stored);
  MutexLock lock(mutex_);
  --ending_;
  progress_.NotifyAll();
}

JobManagerImpl::Ending JobManagerImpl::EndingOf(absl::StatusOr<JobResult> outcome) {
  if (outcome.ok() && !outcome->incomplete.ok()) {
    absl::Status error = outcome->incomplete;
    return {JobState::kFailed, std::move(error), *std::move(outcome)};
  }
  if (outcome.ok()) {
    const bool cancelled = outcome->solve.stop_cause == StopCause::kCancelled;
    return {cancelled ? JobState::kCancelled : JobState::kSucceeded, absl::OkStatus(),
            *std::move(outcome)};
  }
  if (absl::IsCancelled(outcome.status())) return {};
  return {JobState::kFailed, std::move(outcome).status(), std::nullopt};
}

JobManagerImpl::Ending JobManagerImpl::DeadlinePassed(const Job& job) {
  return {JobState::kFailed,
          WithReason(absl::DeadlineExceededError(
                         absl::StrFormat("the deadline of %s passed before the job started",
                                         absl::FormatDuration(job.spec.deadline))),
                     "DEADLINE_EXCEEDED"),
          std::nullopt};
}

absl::Status JobManagerImpl::Commit(ActiveJob& active, Job next) {
  next.revision = active.job->revision + 1;
  if (next.state != active.job->state) {
    next.state_revision = next.revision;
    RecordState(next);
  }
  auto job = std::make_shared<const Job>(std::move(next));
  absl::Status stored = store_.Update(*job);
  // An end cannot be taken back: it holds in memory until the store takes it.
  if (stored.ok() || IsTerminal(job->state)) active.job = std::move(job);
  return stored;
}

void JobManagerImpl::Push(ActiveJob& active, JobWatcher::Event event) {
  if (event != JobWatcher::Event::kProgress) active.listener->Push(event, active.job);
  for (const auto& watcher : active.watchers) watcher->Push(event, active.job);
}

void JobManagerImpl::Deliver(ActiveJob& active) {
  std::vector<std::shared_ptr<EventChannel>> watchers;
  {
    MutexLock lock(active.mutex);
    watchers = active.watchers;
  }
  active.listener->Deliver();
  for (const auto& watcher : watchers) watcher->Deliver();
}

// A job that starts in between sees the signal; one that has ended has no use for it.
void JobManagerImpl::CancelActive(const ActiveJobPtr& active) {
  active->stop.Request();
  {
    MutexLock lock(mutex_);
    work_.NotifyAll();  // it may wait for another device
  }
  End(active, JobState::kQueued, Ending());
}

}  // namespace sparsefw::server
