#include "server/jobs/lifecycle/recovery.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "server/failpoint/failpoint.h"
#include "server/jobs/lifecycle/job_history.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr int kPageSize = 1000;

absl::Status StreamLost(const Job& job) {
  return Refuse(absl::StatusCode::kCancelled, "STREAM_LOST",
                "the server ended while the stream of %s was open, and with the stream the job: "
                "its call did not ask for detach",
                job.name);
}

absl::Status AttemptsExhausted(const Job& job, int most) {
  const std::string times = job.vain_attempts == 1
                                ? std::string("once")
                                : absl::StrFormat("%d times in a row", job.vain_attempts);
  const std::string_view last = job.vain_attempts == 1
                                    ? ", with no other job running"
                                    : ", the last time with no other job running";
  return Refuse(absl::StatusCode::kAborted, "ATTEMPTS_EXHAUSTED",
                "the server ended %s while %s ran and came no further%s; a job fails after %d such "
                "%s (--max-attempts). The log of the server may say why it ended; submit the job "
                "again when that is mended",
                times, job.name, job.alone ? last : "", most, most == 1 ? "run" : "runs");
}

absl::StatusOr<std::vector<Job>> LoadOldestFirst(const JobParts& parts) {
  const JobFilter not_ended{{JobState::kQueued, JobState::kRunning}, {}};
  std::vector<Job> jobs;
  std::string token;
  do {
    SPARSEFW_ASSIGN_OR_RETURN(JobStore::Page page, parts.store.List(not_ended, kPageSize, token));
    std::move(page.jobs.begin(), page.jobs.end(), std::back_inserter(jobs));
    token = page.next_page_token;
  } while (!token.empty());
  std::reverse(jobs.begin(), jobs.end());
  return jobs;
}

// Counts the attempt of a job whose run has ended with its process. Progress of a run that began
// anew is none before it is beyond that of all runs before: a job that ends the server at the same
// place every time gets no further.
void CountAttempt(const JobParts& parts, Job& job) {
  RunMark reported;
  if (job.progress.has_value()) reported = {job.progress->sweep_point, job.progress->iteration};
  const RunMark saved = parts.runner.Saved(job.name);
  const bool further = reported > job.reported || saved > job.saved;
  job.reported = std::max(job.reported, reported);
  job.saved = std::max(job.saved, saved);
  job.vain_attempts = further ? 0 : job.vain_attempts + 1;
}

// Why the job cannot go on; OK, with its inputs, when it can.
absl::StatusOr<std::shared_ptr<JobRunner::Inputs>> Prepare(const JobParts& parts, int max_attempts,
                                                           const Job& job) {
  if (job.state == JobState::kRunning && job.vain_attempts >= max_attempts) {
    return AttemptsExhausted(job, max_attempts);
  }
  if (job.deadline <= parts.clock.Now()) return StateMachine::DeadlinePassed(job).error;
  return PrepareInputs(parts, job.spec, job.owner, JobRunner::Values::kCheckedBefore);
}

// A queued job of this process.
std::shared_ptr<ActiveJob> Add(const JobParts& parts, Job job,
                               std::shared_ptr<JobRunner::Inputs> inputs) {
  // Whatever the clock was set to meanwhile.
  const absl::Duration left =
      std::clamp(job.deadline - parts.clock.Now(), absl::ZeroDuration(), job.spec.deadline);
  const absl::Time deadline = parts.clock.SteadyNow() + left;
  auto active = std::make_shared<ActiveJob>(std::make_shared<const Job>(std::move(job)),
                                            std::move(inputs), deadline);
  const std::shared_ptr<const Job> queued = active->Current();
  {
    MutexLock lock(active->mutex);
    active->announced = true;
  }
  parts.table.Add(active);
  parts.listener.OnRecovered(*queued);
  return active;
}

absl::Status End(const JobParts& parts, StateMachine& states, Job job, int64_t revision,
                 JobState state, absl::Status error) {
  Job queued = job;
  job.error = error;
  job.end_time = parts.clock.Now();
  job.expire_time = job.end_time + job.spec.result_ttl;
  ChangeState(job, state, revision);
  const absl::Status stored = parts.store.Update(job);
  // The end is kept back until there is room.
  if (absl::IsResourceExhausted(stored)) {
    if (queued.state == JobState::kRunning) ReturnToQueue(queued, revision);
    states.End(Add(parts, std::move(queued), std::make_shared<JobRunner::Inputs>()),
               JobState::kQueued, {state, std::move(error), std::nullopt});
    return absl::OkStatus();
  }
  SPARSEFW_RETURN_IF_ERROR(stored);
  parts.listener.OnRecovered(job);
  parts.listener.OnEnded(job);
  return absl::OkStatus();
}

absl::Status Recover(const JobParts& parts, StateMachine& states, int max_attempts, Job job,
                     RecoveredJobs* recovered) {
  const bool ran = job.state == JobState::kRunning;
  const int64_t revision = job.revision + (ran ? kMostRevisionsLost : 1);
  if (ran) CountAttempt(parts, job);
  // A run may have stored results that the job does not name: one that was killed, or that a drain
  // put back into the queue.
  if (job.revision > 1) DiscardResults(parts, job);
  if (job.cancel_requested || job.spec.ends_with_stream) {
    ++recovered->cancelled;
    absl::Status why = job.cancel_requested ? absl::OkStatus() : StreamLost(job);
    return End(parts, states, std::move(job), revision, JobState::kCancelled, std::move(why));
  }
  absl::StatusOr<std::shared_ptr<JobRunner::Inputs>> inputs = Prepare(parts, max_attempts, job);
  if (!inputs.ok()) {
    ++recovered->failed;
    return End(parts, states, std::move(job), revision, JobState::kFailed,
               std::move(inputs).status());
  }
  if (ran) {
    ReturnToQueue(job, revision);
    const absl::Status stored = parts.store.Update(job);
    // On a full disk its start is what the store learns first.
    if (!stored.ok() && !absl::IsResourceExhausted(stored)) return stored;
    if (!stored.ok()) parts.listener.OnBackgroundError(job, stored);
    Failpoint("recovery.requeued");
    ++recovered->interrupted;
  }
  ++recovered->queued;
  // Any of the jobs that ran may be what ended the process: what is suspected most runs alone, so
  // that none is given up for another's sake.
  (*inputs)->need.alone = job.vain_attempts > 0 && job.vain_attempts == max_attempts - 1;
  // Ends it where a job before it has lost the device meanwhile.
  states.Enqueue(Add(parts, std::move(job), *std::move(inputs)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RecoveredJobs> RecoverJobs(const JobParts& parts, StateMachine& states,
                                          int max_attempts) {
  SPARSEFW_ASSIGN_OR_RETURN(std::vector<Job> jobs, LoadOldestFirst(parts));
  Failpoint("recovery.loaded");
  RecoveredJobs recovered;
  for (Job& job : jobs) {
    SPARSEFW_RETURN_IF_ERROR(Recover(parts, states, max_attempts, std::move(job), &recovered));
  }
  return recovered;
}

}  // namespace sparsefw::server
