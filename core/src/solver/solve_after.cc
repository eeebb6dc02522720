// After the iteration: swap refinement of the best mask and weight reconstruction.
#include <algorithm>
#include <utility>

#include "core/src/solver/solve_run.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

// Cost of each stage in evaluations of the loss, which is half a dense
// product in float64. Refinement begins with one product; reconstruction
// begins and ends with one. Both are followed by a loss, that of weights being
// no more than that of a mask.
constexpr int kLossesToRefine = 3;
constexpr int kLossesAfterSwaps = 1;
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

}  // namespace

bool Keeps(const Mask& mask, const Mask& needed) {
  const auto kept = mask.bytes();
  const auto bytes = needed.bytes();
  return std::equal(kept.begin(), kept.end(), bytes.begin(),
                    [](std::byte k, std::byte n) { return (n & ~k) == std::byte{0}; });
}

bool SolveRun::TimeForLosses(int count) const {
  return context_.now() + count * context_.cache.loss_time < context_.options.deadline;
}

// False, and why in stop_cause, where the stage would not be ready in time.
bool SolveRun::TimeToBegin(int losses) {
  if (Stopped()) {
    result_.stop_cause = StopCause::kCancelled;
  } else if (!TimeForLosses(losses)) {
    result_.stop_cause = StopCause::kDeadline;
  } else {
    return true;
  }
  return false;
}

absl::Status SolveRun::Refine() {
  if (!TimeToBegin(kLossesToRefine)) return absl::OkStatus();
  const RefineRequest request = {.keep_fixed = context_.options.keep_fixed, .out_of_time = [this] {
                                   return !TimeForLosses(kLossesAfterSwaps);
                                 }};
  SPARSEFW_ASSIGN_OR_RETURN(RefinedMask refined, engine_->Refine(result_.mask, request));
  if (!refined.converged) {
    result_.stop_cause = Stopped() ? StopCause::kCancelled : StopCause::kDeadline;
  }
  if (refined.swaps > 0) SPARSEFW_RETURN_IF_ERROR(TakeRefined(std::move(refined)));
  Notify();
  return absl::OkStatus();
}

absl::Status SolveRun::TakeRefined(RefinedMask refined) {
  absl::StatusOr<double> loss = TimedLoss(refined.mask);
  if (absl::IsCancelled(loss.status())) {
    // The mask is kept all the same; what the swaps added up has to do.
    result_.stop_cause = StopCause::kCancelled;
    loss = std::max(0.0, result_.final_loss + refined.loss_change);
  }
  SPARSEFW_RETURN_IF_ERROR(loss.status());
  if (!(*loss < result_.final_loss)) return absl::OkStatus();
  result_.final_loss = *loss;
  result_.mask = std::move(refined.mask);
  result_.swaps = refined.swaps;
  result_.candidate = CandidateKind::kRefined;
  fixed_kept_ = context_.options.keep_fixed || Keeps(result_.mask, fixed_);
  return absl::OkStatus();
}

absl::Status SolveRun::Reconstruct() {
  if (!TimeToBegin(kLossesToReconstruct)) return absl::OkStatus();
  bool in_time = true;
  const ReconstructRequest request = {
      .out_of_time = [&] { return !(in_time = in_time && TimeForLosses(kLossesAfterIteration)); }};
  absl::StatusOr<Matrix<float>> weights = engine_->Reconstruct(result_.mask, request);
  absl::StatusOr<double> loss = weights.ok() ? engine_->LossOfWeights(*weights) : weights.status();
  if (absl::IsCancelled(loss.status())) {
    result_.stop_cause = StopCause::kCancelled;
    return absl::OkStatus();
  }
  SPARSEFW_RETURN_IF_ERROR(loss.status());
  if (!in_time) result_.stop_cause = StopCause::kDeadline;
  // SparseGPT and ALPS have weights of their own; the better ones stand.
  if (result_.weights.size() > 0 && result_.reconstructed_loss <= *loss) return absl::OkStatus();
  // Engines compare row by row, and not all of them in the precision of a loss.
  const bool better = *loss < result_.final_loss;
  result_.weights = better ? *std::move(weights) : Masked(context_.problem.weights, result_.mask);
  result_.reconstructed_loss = better ? *loss : result_.final_loss;
  return absl::OkStatus();
}

// A number beside the result: a stop or a deadline leaves it out and changes nothing else.
absl::Status SolveRun::MeasureNewWeights() {
  if (!context_.options.measure_new_weights) return absl::OkStatus();
  if (result_.weights.size() > 0) {
    result_.new_weights_loss = result_.reconstructed_loss;
    return absl::OkStatus();
  }
  if (Stopped() || !TimeForLosses(kLossesToReconstruct)) return absl::OkStatus();
  bool in_time = true;
  const absl::StatusOr<Matrix<float>> weights =
      engine_->Reconstruct(result_.mask, {.out_of_time = [&] {
                             return !(in_time = in_time && TimeForLosses(kLossesAfterIteration));
                           }});
  const absl::StatusOr<double> loss =
      weights.ok() ? engine_->LossOfWeights(*weights) : weights.status();
  if (absl::IsCancelled(loss.status())) return absl::OkStatus();
  SPARSEFW_RETURN_IF_ERROR(loss.status());
  // Weights that were cut short say nothing about the mask.
  if (in_time) result_.new_weights_loss = std::clamp(*loss, 0.0, result_.final_loss);
  return absl::OkStatus();
}

}  // namespace sparsefw
