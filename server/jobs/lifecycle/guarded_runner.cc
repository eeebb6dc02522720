#include "server/jobs/lifecycle/guarded_runner.h"

#include <exception>

#include "absl/strings/str_format.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {

absl::Status GuardedValidation(const std::function<absl::Status()>& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrFormat("validating the job failed: %s", error.what()));
  } catch (...) {
    return absl::InternalError("validating the job failed with an unknown exception");
  }
}

absl::StatusOr<std::shared_ptr<JobRunner::Inputs>> PrepareInputs(JobRunner& runner,
                                                                 const Scheduler& scheduler,
                                                                 const JobSpec& spec,
                                                                 const Owner& owner,
                                                                 JobRunner::Values values) {
  std::shared_ptr<JobRunner::Inputs> inputs;
  SPARSEFW_RETURN_IF_ERROR(GuardedValidation([&]() -> absl::Status {
    SPARSEFW_ASSIGN_OR_RETURN(inputs, runner.Prepare(spec, owner, values));
    if (inputs == nullptr) return absl::InternalError("validating the job gave no inputs");
    return scheduler.CheckPossible(inputs->device_need);
  }));
  return inputs;
}

void DiscardResults(JobRunner& runner, JobListener& listener, const Job& job) {
  try {
    runner.Discard(job);
  } catch (const std::exception& error) {
    listener.OnBackgroundError(
        job, absl::InternalError(absl::StrFormat("discarding the results of %s failed: %s",
                                                 job.name, error.what())));
  } catch (...) {
    listener.OnBackgroundError(
        job, absl::InternalError(absl::StrFormat(
                 "discarding the results of %s failed with an unknown exception", job.name)));
  }
}

}  // namespace sparsefw::server
