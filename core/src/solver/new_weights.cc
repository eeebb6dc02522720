// The weights that lose least on the best mask.
#include <algorithm>
#include <utility>

#include "core/src/solver/solve_state.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

// Times in evaluations of the loss (swaps.cc). A reconstruction begins and ends with one product.
// The loss of the weights follows and takes no longer than that of a mask.
constexpr int kLossesToReconstruct = 5;
constexpr int kLossesAfterIteration = 3;

// W where the mask keeps it; exact, since F16 and BF16 are floats.
Matrix<float> Masked(ConstMatrixView weights, const Mask& mask) {
  Matrix<float> masked(mask.rows(), mask.cols());
  for (int64_t row = 0; row < mask.rows(); ++row) {
    ConvertToFloat(weights.row_bytes(row), weights.dtype(), static_cast<size_t>(mask.cols()),
                   masked.row(row));
    for (int64_t col = 0; col < mask.cols(); ++col) {
      if (!mask.Get(row, col)) masked(row, col) = 0;
    }
  }
  return masked;
}

struct NewWeights {
  Matrix<float> weights;
  double loss = 0;
  bool in_time = true;  // false: cut short
};

absl::StatusOr<NewWeights> SolveWeights(const SolveState& state) {
  NewWeights found;
  const ReconstructRequest request = {.out_of_time = [&] {
    found.in_time = found.in_time && state.limits.TimeForLosses(kLossesAfterIteration);
    return !found.in_time;
  }};
  SPARSEFW_ASSIGN_OR_RETURN(found.weights, state.engine->Reconstruct(state.result.mask, request));
  SPARSEFW_ASSIGN_OR_RETURN(found.loss, state.engine->LossOfWeights(found.weights));
  return found;
}

}  // namespace

absl::Status Reconstruct(SolveState& state) {
  if (!TimeToBegin(state, kLossesToReconstruct)) return absl::OkStatus();
  SolveResult& result = state.result;
  absl::StatusOr<NewWeights> found = SolveWeights(state);
  if (absl::IsCancelled(found.status())) {
    result.stop_cause = StopCause::kCancelled;
    return absl::OkStatus();
  }
  SPARSEFW_RETURN_IF_ERROR(found.status());
  if (!found->in_time) {
    result.stop_cause = StopCause::kDeadline;
    state.weights_cut = true;
  }
  // SparseGPT and ALPS have weights of their own; the better ones stand.
  if (result.weights.size() > 0 && result.reconstructed_loss <= found->loss) {
    return absl::OkStatus();
  }
  // Engines compare row by row, and not all of them in the precision of a loss.
  const bool better = found->loss < result.final_loss;
  result.weights = better ? std::move(found->weights) : Masked(state.problem.weights, result.mask);
  result.reconstructed_loss = better ? found->loss : result.final_loss;
  return absl::OkStatus();
}

absl::Status MeasureNewWeights(SolveState& state) {
  if (!state.options.measure_new_weights) return absl::OkStatus();
  SolveResult& result = state.result;
  // Weights that were cut short say nothing about the mask.
  if (result.weights.size() > 0) {
    if (!state.weights_cut) result.new_weights_loss = NotNegative(result.reconstructed_loss);
    return absl::OkStatus();
  }
  const Limits& limits = state.limits;
  if (limits.stopped() || !limits.TimeForLosses(kLossesToReconstruct)) return absl::OkStatus();
  const absl::StatusOr<NewWeights> found = SolveWeights(state);
  if (absl::IsCancelled(found.status())) return absl::OkStatus();
  SPARSEFW_RETURN_IF_ERROR(found.status());
  if (found->in_time) {
    result.new_weights_loss = NotNegative(std::min(found->loss, result.final_loss));
  }
  return absl::OkStatus();
}

}  // namespace sparsefw
