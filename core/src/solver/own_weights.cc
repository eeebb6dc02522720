// SparseGPT and ALPS as methods of Solve.
#include <utility>

#include "core/src/alps/alps.h"
#include "core/src/linalg/mask_loss.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/solver/stages.h"
#include "core/src/sparsegpt/sparsegpt.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

absl::StatusOr<sparsegpt::PrunedLayer> PruneBy(const SolveOptions& options, const Problem& problem,
                                               const ParallelContext& limited) {
  if (options.method == Method::kSparseGpt) {
    return sparsegpt::Prune(problem, options.sparsegpt, limited);
  }
  SPARSEFW_ASSIGN_OR_RETURN(alps::PrunedLayer pruned, alps::Prune(problem, {}, limited));
  return sparsegpt::PrunedLayer{std::move(pruned.mask), std::move(pruned.weights), alps::kDamping};
}

}  // namespace

absl::Status FindOwnWeights(SolveState& state) {
  const Limits& limits = state.limits;
  const Problem& problem = state.problem;
  SolveResult& result = state.result;
  SPARSEFW_RETURN_IF_ERROR(limits.CheckBeforeMask());
  const ParallelContext limited(state.options.threads, state.given.stop,
                                [&] { return limits.past_deadline(); });
  absl::StatusOr<sparsegpt::PrunedLayer> pruned = PruneBy(state.options, problem, limited);
  // Which of the two it was.
  if (absl::IsCancelled(pruned.status())) SPARSEFW_RETURN_IF_ERROR(limits.CheckBeforeMask());
  SPARSEFW_RETURN_IF_ERROR(pruned.status());
  result.mask = std::move(pruned->mask);
  result.weights = std::move(pruned->weights);
  result.damping = pruned->damping;
  SPARSEFW_ASSIGN_OR_RETURN(result.final_loss, TimedLoss(state, result.mask));
  result.rounded_loss = result.relaxed_loss = result.final_loss;
  // There is a result now: its last loss is not cut short by the deadline.
  const ParallelContext parallel(state.options.threads, state.given.stop);
  SPARSEFW_ASSIGN_OR_RETURN(const Scale scale,
                            ChooseScale(problem.weights, problem.gram, parallel));
  SPARSEFW_ASSIGN_OR_RETURN(
      result.reconstructed_loss,
      LossOfWeights(problem.weights, problem.gram, result.weights, scale, parallel));
  return absl::OkStatus();
}

}  // namespace sparsefw
