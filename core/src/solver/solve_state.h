// The stages of a solve, in their order, and the state that they share; solver.cc puts them
// together.
#ifndef SPARSEFW_CORE_SRC_SOLVER_SOLVE_STATE_H_
#define SPARSEFW_CORE_SRC_SOLVER_SOLVE_STATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/solver/limits.h"
#include "core/src/solver/solve_run.h"
#include "sparsefw/solver.h"

namespace sparsefw {

class CheckpointLog;

// Lives for one solve, at one place: the engine refers to it.
struct SolveState {
  explicit SolveState(const SolveContext& context)
      : given(context),
        options(WithStepRule(context.options)),
        problem(context.problem),
        limits(context.now, context.stop, options.deadline, context.cache.loss_time) {}
  SolveState(const SolveState&) = delete;
  SolveState& operator=(const SolveState&) = delete;

  bool one_shot() const { return options.method != Method::kSparseFw; }
  // EngineProblem::shrinkage.
  double engine_shrinkage() const { return given.backend.shrinks_gram() ? options.shrinkage : 0; }

  const SolveContext& given;
  const SolveOptions options;  // without kAuto
  Problem problem;  // from the warm start on with the shrunk gram, unless the engine shrinks it
  Limits limits;
  Engine* engine = nullptr;  // of the cache
  Mask warm;
  Mask fixed;

  StepStats stats;
  SolveResult result;             // its mask and final_loss are the best so far
  bool fixed_kept = true;         // by that mask
  bool weights_cut = false;       // the time ran out while weights were solved
  Mask last_tried;                // the mask whose loss is result.rounded_loss
  int64_t last_report = -1;       // its iteration
  double threshold_residual = 0;  // at the last report
};

// The problem with the shrunk gram, for what the host reads: a copy, since others may read the
// caller's, which the first call makes and the cache keeps.
// Errors: Cancelled, by the limits of `parallel`
absl::StatusOr<Problem> ShrunkProblem(const SolveState& state, const ParallelContext& parallel);

// Engine::Loss, whose time the limits learn.
absl::StatusOr<double> TimedLoss(SolveState& state, const Mask& mask);

// False, and why in stop_cause, where a stage that takes as long as so many evaluations of the loss
// would not be ready in time.
bool TimeToBegin(SolveState& state, int losses);

// Whether the best mask keeps the fixed set.
bool KeepsFixed(const SolveState& state);

// A lower bound of the loss of every mask that keeps the fixed set, of which final_loss is one.
double Certificate(const SolveState& state);

// A loss as it is reported: 0 where rounding left it below 0.
double NotNegative(double loss);

// Reports the state to the observer, if there is one.
void Notify(const SolveState& state);

// The stages follow.
// Errors: Every stage returns what the engine says. FindWarmStart and FindOwnWeights also return
//         Cancelled and DeadlineExceeded: there is no mask before they end. The others stand by the
//         best mask so far then, and say so in result.stop_cause.

// Validates, shrinks the gram where the engine does not, chooses warm start and fixed set, loads
// the engine and evaluates the warm start, which is the first best mask.
absl::Status FindWarmStart(SolveState& state);

// SparseGPT and ALPS: finds mask and weights, and compares them with the warm start. The engine
// does it where it can (Backend::CheckPrune), else the CPU.
absl::Status FindOwnWeights(SolveState& state);

// Steps between report points, each with a rounding; the best mask of all stays. Goes on from
// the log's checkpoint where it has one.
absl::Status RunFrankWolfe(SolveState& state, CheckpointLog& log);

// Refines the best mask by exchanges.
absl::Status RunSwaps(SolveState& state);

// Solves the weights on the best mask.
absl::Status Reconstruct(SolveState& state);

// Searches mask and weights together, from the reconstructed weights; without them it does nothing.
absl::Status SearchJointly(SolveState& state);

// Finds result.new_weights_loss where that was asked for. A number beside the result: a stop or a
// deadline leaves it out and changes nothing else.
absl::Status MeasureNewWeights(SolveState& state);

// Checks and completes the result, which is gone from the state then.
absl::StatusOr<SolveResult> Finish(SolveState& state);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SOLVER_SOLVE_STATE_H_
