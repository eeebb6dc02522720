// Refines the best mask by exchanges of a kept and a removed weight.
#include <algorithm>
#include <utility>

#include "core/src/solver/solve_state.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

// Times in evaluations of the loss, each half a dense product in float64. Swaps begin with one
// product, and a loss follows them.
constexpr int kLossesToRefine = 3;
constexpr int kLossesAfterSwaps = 1;

absl::Status TakeRefined(SolveState& state, RefinedMask refined) {
  SolveResult& result = state.result;
  absl::StatusOr<double> loss = TimedLoss(state, refined.mask);
  if (absl::IsCancelled(loss.status())) {
    // The mask is kept all the same; what the swaps added up has to do.
    result.stop_cause = StopCause::kCancelled;
    loss = std::max(0.0, result.final_loss + refined.loss_change);
  }
  SPARSEFW_RETURN_IF_ERROR(loss.status());
  if (!(*loss < result.final_loss)) return absl::OkStatus();
  result.final_loss = *loss;
  result.mask = std::move(refined.mask);
  result.swaps = refined.swaps;
  result.candidate = CandidateKind::kRefined;
  state.fixed_kept = state.options.keep_fixed || KeepsFixed(state);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunSwaps(SolveState& state) {
  if (!TimeToBegin(state, kLossesToRefine)) return absl::OkStatus();
  const Limits& limits = state.limits;
  SPARSEFW_ASSIGN_OR_RETURN(
      RefinedMask refined,
      state.engine->Refine(state.result.mask,
                           {.keep_fixed = state.options.keep_fixed, .out_of_time = [&] {
                              return !limits.TimeForLosses(kLossesAfterSwaps);
                            }}));
  if (!refined.converged) {
    state.result.stop_cause = limits.stopped() ? StopCause::kCancelled : StopCause::kDeadline;
  }
  if (refined.swaps > 0) SPARSEFW_RETURN_IF_ERROR(TakeRefined(state, std::move(refined)));
  Notify(state);
  return absl::OkStatus();
}

}  // namespace sparsefw
