// ALPS as a method of Solve.
#include <utility>

#include "core/src/alps/alps.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/solver/solve_run.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {

// The warm start has been evaluated, to compare with; it is no result here.
absl::Status SolveRun::RunAlps() {
  SPARSEFW_RETURN_IF_ERROR(CheckLimits());
  const ParallelContext limited(context_.options.threads, context_.stop,
                                [this] { return context_.now() >= context_.options.deadline; });
  absl::StatusOr<alps::PrunedLayer> pruned = alps::Prune(context_.problem, {}, limited);
  // Which of the two it was.
  if (absl::IsCancelled(pruned.status())) SPARSEFW_RETURN_IF_ERROR(CheckLimits());
  SPARSEFW_RETURN_IF_ERROR(pruned.status());
  return TakeOwnWeights(std::move(pruned->mask), std::move(pruned->weights), alps::kDamping);
}

}  // namespace sparsefw
