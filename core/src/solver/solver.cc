#include "sparsefw/solver.h"

#include <exception>
#include <new>

#include "absl/strings/str_format.h"
#include "core/src/solver/solve_run.h"
#include "sparsefw/status_reason.h"
#include "sparsefw/steady_time.h"

namespace sparsefw {

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
    return SolveRun(context).Run();
  } catch (const std::bad_alloc&) {
    return WithReason(absl::ResourceExhaustedError(absl::StrFormat(
                          "out of memory while solving a [%d, %d] layer on backend \"%s\"",
                          context.problem.weights.rows(), context.problem.weights.cols(),
                          context.backend.name())),
                      "OUT_OF_MEMORY");
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrFormat("backend \"%s\" failed: %s", context.backend.name(), error.what()));
  }
}

}  // namespace sparsefw
