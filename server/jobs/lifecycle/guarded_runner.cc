#include "server/jobs/lifecycle/guarded_runner.h"

#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

template <typename Work>
void Report(const JobParts& parts, const Job& job, std::string_view what, Work work) {
  const absl::Status done = Guarded(absl::StrFormat("%s of %s", what, job.name), [&] {
    work();
    return absl::OkStatus();
  });
  if (!done.ok()) parts.listener.OnBackgroundError(job, done);
}

}  // namespace

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
  Report(parts, job, "discarding the results", [&] { parts.runner.Discard(job); });
}

void ReleaseInputs(const JobParts& parts, const Job& job) {
  Report(parts, job, "releasing the inputs", [&] { parts.runner.ReleaseInputs(job.spec); });
}

}  // namespace sparsefw::server
