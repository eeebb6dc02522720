// What the parts of a job's life share, and calls of the runner whose exceptions become errors.
#ifndef SPARSEFW_SERVER_JOBS_LIFECYCLE_GUARDED_RUNNER_H_
#define SPARSEFW_SERVER_JOBS_LIFECYCLE_GUARDED_RUNNER_H_

#include <exception>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "server/jobs/clock.h"
#include "server/jobs/job_listener.h"
#include "server/jobs/job_runner.h"
#include "server/jobs/job_store.h"
#include "server/jobs/lifecycle/job_table.h"
#include "server/jobs/scheduling/scheduler.h"

namespace sparsefw::server {

// The parts of one JobManager that its other parts use; all outlive those.
struct JobParts {
  Clock& clock;
  JobStore& store;
  JobRunner& runner;
  JobListener& listener;
  JobTable& table;
  Scheduler& scheduler;
};

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
absl::StatusOr<std::shared_ptr<JobRunner::Inputs>> PrepareInputs(const JobParts& parts,
                                                                 const JobSpec& spec,
                                                                 const Owner& owner,
                                                                 JobRunner::Values values);

// JobRunner::Discard and ReleaseInputs; the listener is told of exceptions.
void DiscardResults(const JobParts& parts, const Job& job);
void ReleaseInputs(const JobParts& parts, const Job& job);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_LIFECYCLE_GUARDED_RUNNER_H_
