// Many settings on one layer: which alpha, which method, how sparse.
//
// Their common work is done once: the conversion of W and G, the loss of
// pruning everything, and that of a warm start for settings that follow each
// other. Swaps and reconstruction free the converted copies for memory's sake.
#ifndef SPARSEFW_SWEEP_H_
#define SPARSEFW_SWEEP_H_

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/backend.h"
#include "sparsefw/checkpoint.h"
#include "sparsefw/pattern.h"
#include "sparsefw/problem.h"
#include "sparsefw/solver.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw {

struct SweepPoint {
  Pattern pattern;
  SolveOptions options;
};

// Called on the thread that called SolveSweep, point after point.
// report.sweep_point says which point is running.
class SweepObserver : public SolveObserver {
 public:
  // Each point ends with its result or with the reason why it has none. Not OK
  // ends the sweep; SolveSweep returns it.
  virtual absl::Status OnResult(size_t point, absl::StatusOr<SolveResult> result) = 0;
};

// How a sweep is continued: the caller has the results of the points before
// first_point. checkpoints.resume, where not empty, is a checkpoint of that point.
struct SweepStart {
  size_t first_point = 0;
  Checkpoints checkpoints = {};
};

// Solves layer with every point's pattern and options, in order; layer.pattern
// is not used. Every result is, bit for bit, that of Solve with that point
// alone, with the first point's shrinkage.
//
// Once `stop` is set or a deadline has passed, points not yet begun end with
// Cancelled and DeadlineExceeded. No other error of a point ends the sweep.
//
// Memory:  that of the point that needs most.
// Threads: as Solve. options.threads, options.product_precision and options.shrinkage are
//          taken from the first point.
// Errors:  an exception of OnResult leaves it
//          InvalidArgument  no point. What ValidateProblem says of W and G is the result of every
//                           point
//          what OnResult returned
//          FailedPrecondition  start.checkpoints.resume is not of start.first_point,
//                              or what Solve says of it (CHECKPOINT_INVALID); that
//                              point has no result then and can be begun without it
//          ResourceExhausted  memory
absl::Status SolveSweep(const Problem& layer, std::span<const SweepPoint> points,
                        const Backend& backend, SweepObserver& observer, const StopSignal* stop,
                        const SweepStart& start = {});

}  // namespace sparsefw

#endif  // SPARSEFW_SWEEP_H_
