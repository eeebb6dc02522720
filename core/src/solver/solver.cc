#include "sparsefw/solver.h"

#include <exception>
#include <new>

#include "core/src/solver/checkpoint_log.h"
#include "core/src/solver/solve_state.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/steady_time.h"

namespace sparsefw {
namespace {

absl::Status FindFirstMask(SolveState& state, CheckpointLog& log) {
  SPARSEFW_RETURN_IF_ERROR(log.Open());
  SPARSEFW_RETURN_IF_ERROR(FindWarmStart(state));
  return HasOwnWeights(state.options.method) ? FindOwnWeights(state) : absl::OkStatus();
}

// A checkpoint stands between two stages where the first has taken long.
absl::Status ImproveMask(SolveState& state, CheckpointLog& log) {
  const SolveOptions& options = state.options;
  const bool iterates = !state.one_shot() && log.first() == Stage::kIterate;
  const bool before_weights = log.first() != Stage::kReconstruct;
  if (iterates) SPARSEFW_RETURN_IF_ERROR(RunFrankWolfe(state, log));
  if (options.swaps && before_weights) {
    if (iterates) SPARSEFW_RETURN_IF_ERROR(log.Offer(Stage::kRefine));
    SPARSEFW_RETURN_IF_ERROR(RunSwaps(state));
  }
  if (!options.reconstruct && !options.joint) return absl::OkStatus();
  if ((options.swaps || !state.one_shot()) && before_weights) {
    SPARSEFW_RETURN_IF_ERROR(log.Offer(Stage::kReconstruct));
  }
  SPARSEFW_RETURN_IF_ERROR(Reconstruct(state));
  return options.joint ? SearchJointly(state) : absl::OkStatus();
}

absl::StatusOr<SolveResult> RunStages(const SolveContext& context) {
  SolveState state(context);
  CheckpointLog log(state);
  const absl::Status found = FindFirstMask(state, log);
  // A stop without a mask is an error, whichever stage saw it.
  if (absl::IsCancelled(found)) return CancelledBeforeMask();
  SPARSEFW_RETURN_IF_ERROR(found);
  SPARSEFW_RETURN_IF_ERROR(log.RestoreState());
  SPARSEFW_RETURN_IF_ERROR(ImproveMask(state, log));
  SPARSEFW_RETURN_IF_ERROR(MeasureNewWeights(state));
  return Finish(state);
}

}  // namespace

absl::StatusOr<SolveResult> Solve(const Problem& problem, const SolveOptions& options,
                                  const Backend& backend, SolveObserver* observer,
                                  const StopSignal* stop, const Checkpoints& checkpoints) {
  LayerCache cache;
  return RunSolve({.problem = problem,
                   .options = options,
                   .backend = backend,
                   .cache = cache,
                   .observer = observer,
                   .stop = stop,
                   .now = SteadyNow,
                   .checkpoints = checkpoints});
}

absl::StatusOr<SolveResult> RunSolve(const SolveContext& context) {
  // No exception leaves core; inside, allocations may throw.
  try {
    return RunStages(context);
  } catch (const std::bad_alloc&) {
    return Refuse(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY",
                  "out of memory while solving a [%d, %d] layer on backend \"%s\"",
                  context.problem.weights.rows(), context.problem.weights.cols(),
                  context.backend.name());
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrFormat("backend \"%s\" or the observer failed: %s",
                                               context.backend.name(), error.what()));
  } catch (...) {
    return absl::InternalError(absl::StrFormat(
        "backend \"%s\" or the observer failed with an unknown exception", context.backend.name()));
  }
}

}  // namespace sparsefw
