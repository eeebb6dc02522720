#include <cmath>
#include <string>

#include "absl/strings/str_format.h"
#include "sparsefw/solver.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw {
namespace {

absl::Status OptionInvalid(const std::string& message) {
  return WithReason(absl::InvalidArgumentError(message), "OPTION_INVALID");
}

absl::Status NotInThisVersion(const std::string& message) {
  return WithReason(absl::UnimplementedError(message), "NOT_IN_THIS_VERSION");
}

absl::Status RequireAtLeast(const char* name, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return OptionInvalid(
      absl::StrFormat("%s must be at least %d; got %s=%d", name, least, name, value));
}

// The comparison is false for NaN too.
absl::Status RequireFiniteNotNegative(const char* name, double value) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return OptionInvalid(
      absl::StrFormat("%s must be finite and at least 0; got %s=%g", name, name, value));
}

}  // namespace

absl::Status ValidateOptions(const SolveOptions& options) {
  if (!(options.alpha >= 0 && options.alpha <= 1)) {
    return OptionInvalid(absl::StrFormat("alpha must be in [0, 1]; got alpha=%g", options.alpha));
  }
  SPARSEFW_RETURN_IF_ERROR(RequireAtLeast("iterations", options.iterations, 1));
  SPARSEFW_RETURN_IF_ERROR(RequireAtLeast("report_every", options.report_every, 1));
  SPARSEFW_RETURN_IF_ERROR(RequireAtLeast("threads", options.threads, 0));
  SPARSEFW_RETURN_IF_ERROR(RequireFiniteNotNegative("rel_gap", options.rel_gap));
  SPARSEFW_RETURN_IF_ERROR(
      RequireFiniteNotNegative("ria_exponent", options.warm_start.ria_exponent));
  if (!(options.sparsegpt.damping >= 0 && options.sparsegpt.damping <= 1)) {
    return OptionInvalid(
        absl::StrFormat("damping must be in [0, 1]; got damping=%g", options.sparsegpt.damping));
  }
  SPARSEFW_RETURN_IF_ERROR(RequireAtLeast("block", options.sparsegpt.block, 1));
  if (options.swaps) return NotInThisVersion("swap refinement (swaps) is not in this version");
  if (options.reconstruct) {
    return NotInThisVersion("weight reconstruction (reconstruct) is not in this version");
  }
  return absl::OkStatus();
}

}  // namespace sparsefw
