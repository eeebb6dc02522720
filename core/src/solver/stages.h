// The stages of a solve, in their order; solver.cc puts them together.
//
// Errors: Every stage returns what the engine says. FindWarmStart and FindOwnWeights also return
//         Cancelled and DeadlineExceeded: there is no mask before they end. The others stand by the
//         best mask so far then, and say so in result.stop_cause.
#ifndef SPARSEFW_CORE_SRC_SOLVER_STAGES_H_
#define SPARSEFW_CORE_SRC_SOLVER_STAGES_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/solver/checkpoint_log.h"
#include "core/src/solver/solve_state.h"

namespace sparsefw {

// Validates, shrinks the gram, chooses warm start and fixed set, loads the engine and evaluates
// the warm start, which is the first best mask.
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

#endif  // SPARSEFW_CORE_SRC_SOLVER_STAGES_H_
