#include "server/jobs/lifecycle/workers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

using StopReason = ActiveJob::StopReason;

// Ends that may wait for the disk while as many jobs as possible run.
constexpr int kEndsAtOnce = 8;
// A disk that is full stays full for a while.
constexpr absl::Duration kStartRetry = absl::Seconds(1);

absl::Status DeadlinePassedRunning() {
  return Refuse(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                "the deadline passed before there was a mask");
}

// The outcome of a run that was stopped because its deadline had passed: as if it had seen so
// itself.
absl::StatusOr<JobResult> AsOverdue(absl::StatusOr<JobResult> outcome) {
  const auto overdue = [](SolveSummary& solve) {
    if (solve.stop_cause == StopCause::kCancelled) solve.stop_cause = StopCause::kDeadline;
  };
  if (!outcome.ok()) {
    return absl::IsCancelled(outcome.status()) ? DeadlinePassedRunning() : outcome.status();
  }
  overdue(outcome->solve);
  for (SweepOutcome& point : outcome->sweep) {
    overdue(point.result.solve);
    if (absl::IsCancelled(point.error)) point.error = DeadlinePassedRunning();
  }
  return outcome;
}

StateMachine::Ending EndingOf(absl::StatusOr<JobResult> outcome) {
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

// Whether the stop signal ended the run: then it may be run again from its start.
bool StoppedEarly(const absl::StatusOr<JobResult>& outcome) {
  if (!outcome.ok()) return absl::IsCancelled(outcome.status());
  return outcome->solve.stop_cause == StopCause::kCancelled;
}

}  // namespace

Workers::Workers(int count, const JobParts& parts, StateMachine& states, Announcer& announcer)
    : parts_(parts), durable_(parts.store.durable()), states_(states), announcer_(announcer) {
  if (durable_) count += kEndsAtOnce;
  threads_.reserve(static_cast<size_t>(count) + 1);
  threads_.emplace_back([this] { DeadlineLoop(); });
  for (int i = 0; i < count; ++i) threads_.emplace_back([this] { WorkerLoop(); });
}

Workers::~Workers() {
  parts_.scheduler.Stop();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::WorkerLoop() {
  while (true) {
    Lease lease = parts_.scheduler.NextJob();
    if (lease.job == nullptr) return;
    RunJob(lease);
  }
}

void Workers::DeadlineLoop() {
  while (true) {
    const Scheduler::Expired expired = parts_.scheduler.NextExpired();
    if (expired.empty()) return;
    // First what is quick: ends are stored.
    for (const Scheduler::JobPtr& job : expired.leased) states_.Stop(job, StopReason::kOverdue);
    for (const Scheduler::JobPtr& job : expired.queued) {
      states_.End(job, JobState::kQueued, StateMachine::DeadlinePassed(*job->Current()));
    }
  }
}

void Workers::RunJob(Lease& lease) {
  const Scheduler::JobPtr active = lease.job;
  std::optional<StateMachine::Started> started = states_.Start(active);
  if (!started) {
    parts_.scheduler.Release(lease);
    {
      MutexLock lock(active->mutex);
      if (!active->Waits()) return;
    }
    parts_.scheduler.AwaitStop(kStartRetry);
    return states_.Enqueue(active);
  }
  const Job& job = *started->job;
  absl::StatusOr<JobResult> outcome = RunPlaced(lease, job, *started->inputs);
  if (outcome.ok()) {
    outcome->queue_time = std::max(job.start_time - job.create_time, absl::ZeroDuration());
  }
  if (StoppedEarly(outcome) && states_.Requeue(active)) {
    if (outcome.ok()) {
      Job unfinished = job;
      unfinished.result = *std::move(outcome);
      DiscardResults(parts_, unfinished);
    }
    return parts_.scheduler.Release(lease);
  }
  if (active->WhyStopped() == StopReason::kOverdue) outcome = AsOverdue(std::move(outcome));
  // Dropped before the end is announced: a client may delete the tensors at once.
  started->inputs.reset();
  if (durable_) parts_.scheduler.Release(lease);
  states_.End(active, JobState::kRunning, EndingOf(std::move(outcome)));
  if (!durable_) parts_.scheduler.Release(lease);
}

absl::StatusOr<JobResult> Workers::RunPlaced(Lease& lease, const Job& job,
                                             JobRunner::Inputs& inputs) {
  const Scheduler::JobPtr& active = lease.job;
  const auto report = [&](const ProgressReport& progress) { announcer_.Report(active, progress); };
  for (bool again = false;; again = true) {
    parts_.scheduler.FreeEvicted(lease);
    absl::StatusOr<JobResult> outcome = Guarded("the run", [&] {
      return parts_.runner.Run(job, inputs, lease.placement, active->stop, report);
    });
    const std::string& device = lease.placement.device;
    if (device.empty() || !HasReason(outcome.status(), "DEVICE_LOST")) return outcome;
    LoseDevice(device, job, outcome.status());
    if (again) return outcome;
    SPARSEFW_RETURN_IF_ERROR(parts_.scheduler.MoveToAnotherDevice(lease, outcome.status()));
  }
}

void Workers::LoseDevice(const std::string& device, const Job& job, const absl::Status& error) {
  bool newly_lost = false;
  const auto stranded = parts_.scheduler.LoseDevice(device, &newly_lost);
  if (!newly_lost) return;
  parts_.listener.OnDeviceLost(device, job, error);
  for (const auto& [queued, why] : stranded) {
    states_.End(queued, JobState::kQueued, {JobState::kFailed, why, std::nullopt});
  }
}

}  // namespace sparsefw::server
