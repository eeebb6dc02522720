// SparseGPT and ALPS as methods of Solve.
#include <utility>

#include "core/src/alps/alps.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/solver/solve_state.h"
#include "core/src/sparsegpt/sparsegpt.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

absl::StatusOr<PrunedWeights> PruneOnHost(const SolveState& state) {
  const SolveOptions& options = state.options;
  const ParallelContext limited(options.threads, state.given.stop,
                                [&] { return state.limits.past_deadline(); });
  SPARSEFW_ASSIGN_OR_RETURN(const Problem problem, ShrunkProblem(state, limited));
  if (options.method == Method::kSparseGpt) {
    return sparsegpt::Prune(problem, options.sparsegpt, limited);
  }
  SPARSEFW_ASSIGN_OR_RETURN(alps::PrunedLayer pruned, alps::Prune(problem, {}, limited));
  return PrunedWeights{std::move(pruned.mask), std::move(pruned.weights), alps::kDamping};
}

absl::StatusOr<PrunedWeights> PruneByEngine(const SolveState& state) {
  const bool sparsegpt = state.options.method == Method::kSparseGpt;
  return state.engine->Prune({.method = sparsegpt ? WeightMethod::kSparseGpt : WeightMethod::kAlps,
                              .sparsegpt = state.options.sparsegpt,
                              .out_of_time = [&state] { return state.limits.past_deadline(); }});
}

}  // namespace

absl::Status FindOwnWeights(SolveState& state) {
  const Limits& limits = state.limits;
  SolveResult& result = state.result;
  SPARSEFW_RETURN_IF_ERROR(limits.CheckBeforeMask());
  const bool on_device = state.given.backend.CheckPrune().ok();
  absl::StatusOr<PrunedWeights> pruned = on_device ? PruneByEngine(state) : PruneOnHost(state);
  // Which of the two it was.
  if (absl::IsCancelled(pruned.status())) SPARSEFW_RETURN_IF_ERROR(limits.CheckBeforeMask());
  SPARSEFW_RETURN_IF_ERROR(pruned.status());
  result.mask = std::move(pruned->mask);
  result.weights = std::move(pruned->weights);
  result.damping = pruned->damping;
  SPARSEFW_ASSIGN_OR_RETURN(result.final_loss, TimedLoss(state, result.mask));
  result.rounded_loss = result.relaxed_loss = result.final_loss;
  // There is a result by now: this loss is not cut short by the deadline.
  SPARSEFW_ASSIGN_OR_RETURN(result.reconstructed_loss, state.engine->LossOfWeights(result.weights));
  return absl::OkStatus();
}

}  // namespace sparsefw
