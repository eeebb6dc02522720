// Calls of the runner whose exceptions become errors.
#ifndef SPARSEFW_SERVER_JOBS_LIFECYCLE_GUARDED_RUNNER_H_
#define SPARSEFW_SERVER_JOBS_LIFECYCLE_GUARDED_RUNNER_H_

#include <exception>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "server/jobs/job_listener.h"
#include "server/jobs/job_runner.h"
#include "server/jobs/scheduling/scheduler.h"

namespace sparsefw::server {

// Returns what `work` returns, a Status or a StatusOr; Internal where it throws.
template <typename Work>
auto Guarded(std::string_view what, Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrFormat("%s failed: %s", what, error.what()));
  } catch (...) {
    return absl::InternalError(absl::StrFormat("%s failed with an unknown exception", what));
  }
}

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
