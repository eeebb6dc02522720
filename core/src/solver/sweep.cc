#include "sparsefw/sweep.h"

#include <utility>

#include "core/src/solver/solve_run.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/steady_time.h"

namespace sparsefw {

absl::Status SolveSweep(const Problem& layer, std::span<const SweepPoint> points,
                        const Backend& backend, SweepObserver& observer, const StopSignal* stop,
                        const SweepStart& start) {
  if (points.empty()) {
    return Invalid("OPTION_INVALID", "a sweep must have at least 1 point; got 0");
  }
  LayerCache cache;
  cache.reused = points.size() > start.first_point + 1;
  Checkpoints checkpoints = start.checkpoints;
  for (size_t index = start.first_point; index < points.size(); ++index) {
    Problem problem = layer;
    problem.pattern = points[index].pattern;
    SolveOptions options = points[index].options;
    options.threads = points.front().options.threads;  // they share an engine and its inputs
    options.shrinkage = points.front().options.shrinkage;
    options.product_precision = points.front().options.product_precision;
    absl::StatusOr<SolveResult> result = RunSolve({.problem = problem,
                                                   .options = options,
                                                   .backend = backend,
                                                   .cache = cache,
                                                   .observer = &observer,
                                                   .stop = stop,
                                                   .now = SteadyNow,
                                                   .checkpoints = checkpoints,
                                                   .sweep_point = static_cast<int>(index)});
    checkpoints.resume = {};  // of the first point only
    // The point has no result yet, so it can begin without the checkpoint.
    if (HasReason(result.status(), "CHECKPOINT_INVALID")) return result.status();
    // An engine that failed on the way is in no defined state.
    if (!result.ok()) cache.engine.reset();
    SPARSEFW_RETURN_IF_ERROR(observer.OnResult(index, std::move(result)));
  }
  return absl::OkStatus();
}

}  // namespace sparsefw
