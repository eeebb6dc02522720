#include "server/jobs/lifecycle/guarded_runner.h"

#include <exception>

#include "absl/strings/str_format.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {

absl::StatusOr<std::shared_ptr<JobRunner::Inputs>> PrepareInputs(const JobParts& parts,
                                                                 const JobSpec& spec,
                                                                 const Owner& owner,
                                                                 JobRunner::Values values) {
  using Inputs = std::shared_ptr<JobRunner::Inputs>;
  return Guarded("validating the job", [&]() -> absl::StatusOr<Inputs> {
    SPARSEFW_ASSIGN_OR_RETURN(Inputs inputs, parts.runner.Prepare(spec, owner, values));
    if (inputs == nullptr) return absl::InternalError("validating the job gave no inputs");
    SPARSEFW_RETURN_IF_ERROR(parts.scheduler.CheckPossible(inputs->need.device));
    return inputs;
  });
}

void DiscardResults(const JobParts& parts, const Job& job) {
  const absl::Status discarded =
      Guarded(absl::StrFormat("discarding the results of %s", job.name), [&] {
        parts.runner.Discard(job);
        return absl::OkStatus();
      });
  if (!discarded.ok()) parts.listener.OnBackgroundError(job, discarded);
}

}  // namespace sparsefw::server
