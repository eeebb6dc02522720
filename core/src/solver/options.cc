#include <cmath>
#include <string>

#include "absl/strings/str_format.h"
#include "core/src/base/number_text.h"
#include "sparsefw/solver.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw {
namespace {

absl::Status RequireAtLeast(const char* name, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return Invalid("OPTION_INVALID", "%s must be at least %d; got %s=%d", name, least, name, value);
}

// The comparison is false for NaN too.
absl::Status RequireFiniteNotNegative(const char* name, double value) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return Invalid("OPTION_INVALID", "%s must be finite and at least 0; got %s=%s", name, name,
                 NumberText(value));
}

absl::Status ValidateJoint(const SolveOptions& options) {
  const JointOptions& joint = options.joint_options;
  if (!(joint.damping >= 0 && joint.damping <= 1)) {
    return Invalid("OPTION_INVALID", "joint_damping must be in [0, 1]; got joint_damping=%s",
                   NumberText(joint.damping));
  }
  if (!(joint.excluded >= 0 && joint.excluded < 1)) {
    return Invalid("OPTION_INVALID", "joint_excluded must be in [0, 1); got joint_excluded=%s",
                   NumberText(joint.excluded));
  }
  if (options.joint && options.reconstruct) {
    return Invalid("OPTION_INVALID",
                   "reconstruct must be off with joint, which solves the weights itself; got "
                   "reconstruct=true");
  }
  return absl::OkStatus();
}

}  // namespace

SolveOptions WithStepRule(SolveOptions options) {
  if (options.step_rule != StepRule::kAuto) return options;
  options.step_rule = StepRule::kLineSearch;
  if (options.rel_gap == 0) options.rel_gap = kAutoRelGap;
  return options;
}

absl::Status ValidateOptions(const SolveOptions& options) {
  if (!(options.alpha >= 0 && options.alpha <= 1)) {
    return Invalid("OPTION_INVALID", "alpha must be in [0, 1]; got alpha=%s",
                   NumberText(options.alpha));
  }
  if (!(options.shrinkage >= 0 && options.shrinkage < 1)) {
    return Invalid("OPTION_INVALID", "shrinkage must be in [0, 1); got shrinkage=%s",
                   NumberText(options.shrinkage));
  }
  SPARSEFW_RETURN_IF_ERROR(RequireAtLeast("iterations", options.iterations, 1));
  SPARSEFW_RETURN_IF_ERROR(RequireAtLeast("report_every", options.report_every, 1));
  SPARSEFW_RETURN_IF_ERROR(RequireAtLeast("threads", options.threads, 0));
  SPARSEFW_RETURN_IF_ERROR(RequireFiniteNotNegative("rel_gap", options.rel_gap));
  SPARSEFW_RETURN_IF_ERROR(
      RequireFiniteNotNegative("ria_exponent", options.warm_start.ria_exponent));
  if (!(options.sparsegpt.damping >= 0 && options.sparsegpt.damping <= 1)) {
    return Invalid("OPTION_INVALID", "damping must be in [0, 1]; got damping=%s",
                   NumberText(options.sparsegpt.damping));
  }
  SPARSEFW_RETURN_IF_ERROR(RequireAtLeast("block", options.sparsegpt.block, 1));
  // Their new weights belong to their own mask.
  if (HasOwnWeights(options.method) && options.swaps) {
    return Invalid("OPTION_INVALID", "swaps must be off with method %s; got swaps=true",
                   options.method == Method::kAlps ? "ALPS" : "SPARSEGPT");
  }
  return ValidateJoint(options);
}

}  // namespace sparsefw
