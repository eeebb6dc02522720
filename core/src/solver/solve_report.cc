// Report points, the losses of masks, and the end of a solve.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/solver/solve_run.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw {
namespace {

// The loss of pruning everything if the inputs were uncorrelated: sum W_ij^2 G_jj.
double UncorrelatedLoss(const Problem& problem) {
  const std::vector<double> diagonal = DiagonalOf(problem.gram);
  std::vector<double> row(diagonal.size());
  double sum = 0;
  for (int64_t i = 0; i < problem.weights.rows(); ++i) {
    ConvertToDouble(problem.weights.row_bytes(i), problem.weights.dtype(), problem.weights.cols(),
                    row.data());
    for (size_t j = 0; j < row.size(); ++j) sum += row[j] * row[j] * diagonal[j];
  }
  return sum;
}

// A true loss is at least 0. What rounding of G leaves below it is small beside
// the uncorrelated loss: 2^-8 of it is the error of a G made in bfloat16.
absl::Status CheckNotNegative(double loss, const Problem& problem) {
  if (!(loss < 0)) return absl::OkStatus();
  const double rounding = UncorrelatedLoss(problem) / 256;
  if (loss >= -rounding) return absl::OkStatus();
  return WithReason(
      absl::InvalidArgumentError(absl::StrFormat(
          "gram must be positive semi-definite, so that no loss is below 0; got the loss %g, "
          "beyond the rounding of %g",
          loss, rounding)),
      "GRAM_NOT_POSITIVE_DEFINITE");
}

// As it is reported: what rounding leaves below 0 is 0.
double NotNegative(double loss) { return std::max(loss, 0.0); }

// A share of the loss that a mask's is compared with.
constexpr double kLeastShareOfLoss = 1.0 / 16;

}  // namespace

absl::Status SolveRun::Report() {
  const absl::Time begin = context_.now();
  SPARSEFW_ASSIGN_OR_RETURN(RoundedMask rounded, engine_->Round());
  round_time_ = std::max(round_time_, context_.now() - begin);
  SPARSEFW_ASSIGN_OR_RETURN(result_.rounded_loss, LossOf(rounded.mask));
  if (result_.rounded_loss < result_.final_loss) {
    result_.final_loss = result_.rounded_loss;
    result_.mask = rounded.mask;
    result_.candidate = CandidateKind::kRounded;
  }
  last_tried_ = std::move(rounded.mask);
  last_report_ = stats_.iteration;
  threshold_residual_ = rounded.threshold_residual;
  Notify();
  return absl::OkStatus();
}

void SolveRun::Notify() const {
  if (context_.observer == nullptr) return;
  context_.observer->OnReport({.iteration = stats_.iteration,
                               .iterations_total = one_shot() ? 0 : context_.options.iterations,
                               .relaxed_loss = NotNegative(stats_.relaxed_loss),
                               .gap = stats_.gap,
                               .step_size = stats_.step_size,
                               .threshold_residual = threshold_residual_,
                               .rounded_loss = result_.rounded_loss,
                               .best_loss = result_.final_loss,
                               .warm_start_loss = result_.warm_start_loss,
                               .lower_bound = Certificate(result_.final_loss),
                               .swaps = result_.swaps,
                               .elapsed = Elapsed()});
}

// Masks settle long before the iteration ends; the last one is not evaluated twice, and
// one that differs from it in few weights not from scratch.
absl::StatusOr<double> SolveRun::LossOf(const Mask& mask) {
  if (mask == last_tried_) return result_.rounded_loss;
  const absl::Time begin = context_.now();
  SPARSEFW_ASSIGN_OR_RETURN(
      const double loss,
      engine_->LossNear(mask, {.mask = last_tried_, .loss = result_.rounded_loss}));
  context_.cache.loss_time = std::max(context_.cache.loss_time, context_.now() - begin);
  // A difference of much larger losses has their rounding, too large for this one.
  const double largest = std::max(result_.rounded_loss, result_.warm_start_loss);
  return loss >= kLeastShareOfLoss * largest ? loss : TimedLoss(mask);
}

absl::StatusOr<double> SolveRun::TimedLoss(const Mask& mask) {
  const absl::Time begin = context_.now();
  SPARSEFW_ASSIGN_OR_RETURN(const double loss, engine_->Loss(mask));
  context_.cache.loss_time = std::max(context_.cache.loss_time, context_.now() - begin);
  return loss;
}

// In exact arithmetic L(M_t) - g_t never exceeds the loss of a mask that keeps
// the fixed set, for `loss` is one. In floating point it may, by what the
// iterates are off: then the mask is optimal to that accuracy and its loss is
// the bound. By more than that it can only where G is not positive
// semi-definite; L is not convex then and nothing is known.
// A mask that gave up fixed weights is not what the bound is about.
double SolveRun::Certificate(double loss) const {
  if (!fixed_kept_) return 0;
  const double bound = std::max(0.0, stats_.lower_bound);
  if (bound <= loss) return bound;
  const double rounding = 1e-4 * std::abs(loss) + 1e-6 * result_.full_loss;
  return bound <= loss + rounding ? std::max(0.0, loss) : 0;
}

absl::Status SolveRun::MeasureUnshrunk() {
  if (options_.shrinkage == 0) return absl::OkStatus();
  const auto with_gram = [&](double loss, const Mask& mask, const Matrix<float>& weights) {
    return UnshrunkLoss(loss, options_.shrinkage, problem_.weights, given_gram_, mask, weights);
  };
  const bool new_weights = result_.weights.size() > 0;
  const double loss = new_weights ? result_.reconstructed_loss : result_.final_loss;
  return ParallelContext(options_.threads).Run([&] {
    result_.unshrunk = {with_gram(result_.full_loss, Mask(warm_.rows(), warm_.cols()), {}),
                        with_gram(result_.warm_start_loss, warm_, {}),
                        with_gram(loss, result_.mask, result_.weights)};
    return absl::OkStatus();
  });
}

absl::StatusOr<SolveResult> SolveRun::Finish() {
  for (double* loss :
       {&result_.full_loss, &result_.warm_start_loss, &result_.rounded_loss, &result_.final_loss,
        &result_.reconstructed_loss, &result_.joint.start_loss}) {
    SPARSEFW_RETURN_IF_ERROR(CheckNotNegative(*loss, context_.problem));
    *loss = NotNegative(*loss);
  }
  SPARSEFW_RETURN_IF_ERROR(MeasureUnshrunk());
  result_.kept_count = result_.mask.CountKept();
  result_.iterations = stats_.iteration;
  if (!one_shot()) {
    result_.relaxed_loss = stats_.relaxed_loss;
    result_.drift = stats_.drift;
    result_.screening = stats_.screening;
    result_.lower_bound = Certificate(result_.final_loss);
  }
  result_.relaxed_loss = NotNegative(result_.relaxed_loss);
  if (result_.warm_start_loss > 0) {
    const bool new_weights = HasOwnWeights(context_.options.method) || result_.joint.searched;
    const double loss = new_weights ? result_.reconstructed_loss : result_.final_loss;
    result_.relative_reduction = 1 - loss / result_.warm_start_loss;
  }
  if (result_.joint.start_loss > 0) {
    result_.joint.reduction = 1 - result_.reconstructed_loss / result_.joint.start_loss;
  }
  result_.solve_time = Elapsed() - result_.load_time;
  return std::move(result_);
}

}  // namespace sparsefw
