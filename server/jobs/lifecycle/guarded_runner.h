// Calls of the runner whose exceptions become errors.
#ifndef SPARSEFW_SERVER_JOBS_LIFECYCLE_GUARDED_RUNNER_H_
#define SPARSEFW_SERVER_JOBS_LIFECYCLE_GUARDED_RUNNER_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/job_listener.h"
#include "server/jobs/job_runner.h"
#include "server/jobs/scheduling/scheduler.h"

namespace sparsefw::server {

// Runs `work`, which validates a job.
absl::Status GuardedValidation(const std::function<absl::Status()>& work);

// JobRunner::Prepare, and whether a device could run the job.
absl::StatusOr<std::shared_ptr<JobRunner::Inputs>> PrepareInputs(JobRunner& runner,
                                                                 const Scheduler& scheduler,
                                                                 const JobSpec& spec,
                                                                 const Owner& owner,
                                                                 JobRunner::Values values);

// JobRunner::Discard; the listener is told of exceptions.
void DiscardResults(JobRunner& runner, JobListener& listener, const Job& job);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_LIFECYCLE_GUARDED_RUNNER_H_
