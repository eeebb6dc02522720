#include "server/jobs/lifecycle/recovery.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/failpoint/failpoint.h"
#include "server/jobs/lifecycle/guarded_runner.h"
#include "server/jobs/lifecycle/job_history.h"
#include "server/jobs/lifecycle/state_machine.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

constexpr int kPageSize = 1000;
// A power failure may take back progress whose revisions watchers have seen. The
// next state change must be newer than those, or they would miss it.
constexpr int64_t kMostRevisionsLost = int64_t{1} << 20;

absl::Status StreamLost(const Job& job) {
  return Refuse(absl::StatusCode::kCancelled, "STREAM_LOST",
                "the server ended while the stream of %s was open, and with the stream the job: "
                "its call did not ask for detach",
                job.name);
}

}  // namespace

absl::StatusOr<RecoveredJobs> Recovery::Run() {
  SPARSEFW_ASSIGN_OR_RETURN(std::vector<Job> jobs, LoadOldestFirst());
  Failpoint("recovery.loaded");
  RecoveredJobs recovered;
  for (Job& job : jobs) SPARSEFW_RETURN_IF_ERROR(Recover(std::move(job), &recovered));
  return recovered;
}

absl::StatusOr<std::vector<Job>> Recovery::LoadOldestFirst() const {
  const JobFilter not_ended{{JobState::kQueued, JobState::kRunning}, {}};
  std::vector<Job> jobs;
  std::string token;
  do {
    SPARSEFW_ASSIGN_OR_RETURN(JobStore::Page page, parts_.store.List(not_ended, kPageSize, token));
    std::move(page.jobs.begin(), page.jobs.end(), std::back_inserter(jobs));
    token = page.next_page_token;
  } while (!token.empty());
  std::reverse(jobs.begin(), jobs.end());
  return jobs;
}

absl::Status Recovery::Recover(Job job, RecoveredJobs* recovered) {
  const bool ran = job.state == JobState::kRunning;
  const int64_t revision = job.revision + (ran ? kMostRevisionsLost : 1);
  // The run may have stored results that the job does not name yet.
  if (ran) DiscardResults(parts_.runner, parts_.listener, job);
  if (IsOver(job)) {
    ++recovered->cancelled;
    absl::Status why = job.cancel_requested ? absl::OkStatus() : StreamLost(job);
    return End(std::move(job), revision, JobState::kCancelled, std::move(why));
  }
  absl::StatusOr<std::shared_ptr<JobRunner::Inputs>> inputs = Prepare(job);
  if (!inputs.ok()) {
    ++recovered->failed;
    return End(std::move(job), revision, JobState::kFailed, std::move(inputs).status());
  }
  if (ran) {
    ReturnToQueue(job, revision);
    SPARSEFW_RETURN_IF_ERROR(parts_.store.Update(job));
    Failpoint("recovery.requeued");
    ++recovered->interrupted;
  }
  ++recovered->queued;
  const auto active =
      std::make_shared<ActiveJob>(std::make_shared<const Job>(std::move(job)), *std::move(inputs));
  const std::shared_ptr<const Job> queued = active->Current();
  {
    MutexLock lock(active->mutex);
    active->announced = true;
  }
  parts_.table.Add(active);
  parts_.listener.OnRecovered(*queued);
  return parts_.scheduler.Enqueue(active);
}

bool Recovery::IsOver(const Job& job) { return job.cancel_requested || job.spec.ends_with_stream; }

absl::StatusOr<std::shared_ptr<JobRunner::Inputs>> Recovery::Prepare(const Job& job) const {
  if (job.state == JobState::kRunning && job.attempts >= max_attempts_) {
    return Refuse(absl::StatusCode::kAborted, "ATTEMPTS_EXHAUSTED",
                  "the server ended during the run of %s, %d times; a job is run at most %d times",
                  job.name, job.attempts, max_attempts_);
  }
  if (job.deadline <= parts_.clock.Now()) return StateMachine::DeadlinePassed(job).error;
  return PrepareInputs(parts_.runner, parts_.scheduler, job.spec, job.owner,
                       JobRunner::Values::kCheckedBefore);
}

absl::Status Recovery::End(Job job, int64_t revision, JobState state, absl::Status error) {
  job.error = std::move(error);
  job.end_time = parts_.clock.Now();
  job.expire_time = job.end_time + job.spec.result_ttl;
  ChangeState(job, state, revision);
  SPARSEFW_RETURN_IF_ERROR(parts_.store.Update(job));
  parts_.listener.OnRecovered(job);
  parts_.listener.OnEnded(job);
  return absl::OkStatus();
}

}  // namespace sparsefw::server
