// SparseGPT as a method of Solve.
#include <utility>

#include "core/src/linalg/mask_loss.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/solver/solve_run.h"
#include "core/src/sparsegpt/sparsegpt.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {

// The warm start has been evaluated, to compare with; it is no result here.
absl::Status SolveRun::RunSparseGpt() {
  const Problem& problem = context_.problem;
  const SolveOptions& options = context_.options;
  SPARSEFW_RETURN_IF_ERROR(CheckLimits());
  const ParallelContext limited(options.threads, context_.stop,
                                [this] { return context_.now() >= context_.options.deadline; });
  absl::StatusOr<sparsegpt::PrunedLayer> pruned =
      sparsegpt::Prune(problem, options.sparsegpt, limited);
  // Which of the two it was.
  if (absl::IsCancelled(pruned.status())) SPARSEFW_RETURN_IF_ERROR(CheckLimits());
  SPARSEFW_RETURN_IF_ERROR(pruned.status());

  return TakeOwnWeights(std::move(pruned->mask), std::move(pruned->weights), pruned->damping);
}

absl::Status SolveRun::TakeOwnWeights(Mask mask, Matrix<float> weights, double damping) {
  const Problem& problem = context_.problem;
  result_.mask = std::move(mask);
  result_.weights = std::move(weights);
  result_.damping = damping;
  SPARSEFW_ASSIGN_OR_RETURN(result_.final_loss, TimedLoss(result_.mask));
  result_.rounded_loss = result_.final_loss;
  result_.relaxed_loss = result_.final_loss;
  // There is a result now: its last loss is not cut short by the deadline.
  const ParallelContext parallel(context_.options.threads, context_.stop);
  SPARSEFW_ASSIGN_OR_RETURN(const Scale scale,
                            ChooseScale(problem.weights, problem.gram, parallel));
  SPARSEFW_ASSIGN_OR_RETURN(
      result_.reconstructed_loss,
      LossOfWeights(problem.weights, problem.gram, result_.weights, scale, parallel));
  return absl::OkStatus();
}

}  // namespace sparsefw
