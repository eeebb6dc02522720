#include "core/src/solver/solve_state.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/src/linalg/finite.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

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

// A true loss is at least 0. Rounding of G can take it below 0, by little beside the uncorrelated
// loss: a G made in bfloat16 is off by 2^-8 of that.
// New weights are taken while rounding is less than `start`, what the weights before lose.
absl::Status CheckNotNegative(double loss, double start, const Problem& problem) {
  if (!(loss < -start)) return absl::OkStatus();
  const double rounding = std::max(start, UncorrelatedLoss(problem) / 256);
  if (loss >= -rounding) return absl::OkStatus();
  return Invalid(
      "GRAM_NOT_POSITIVE_DEFINITE",
      "gram must be positive semi-definite, so that no loss is below 0; got the loss %g, "
      "beyond the rounding of %g",
      loss, rounding);
}

absl::Status MeasureUnshrunk(SolveState& state) {
  const double shrinkage = state.options.shrinkage;
  if (shrinkage == 0) return absl::OkStatus();
  SolveResult& result = state.result;
  const auto with_gram = [&](double loss, const Mask& mask, const Matrix<float>& weights) {
    return UnshrunkLoss(loss, shrinkage, state.problem.weights, state.given.problem.gram, mask,
                        weights);
  };
  const bool new_weights = result.weights.size() > 0;
  const double loss = new_weights ? result.reconstructed_loss : result.final_loss;
  const Mask& warm = state.warm;
  return ParallelContext(state.options.threads).Run([&] {
    result.unshrunk = {with_gram(result.full_loss, Mask(warm.rows(), warm.cols()), {}),
                       with_gram(result.warm_start_loss, warm, {}),
                       with_gram(loss, result.mask, result.weights)};
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<Problem> ShrunkProblem(const SolveState& state, const ParallelContext& parallel) {
  Problem problem = state.problem;
  if (state.options.shrinkage == 0) return problem;
  ShrunkGram& shrunk = state.given.cache.shrunk;
  SPARSEFW_RETURN_IF_ERROR(parallel.Run([&] {
    if (shrunk.empty()) shrunk = ShrunkGram(problem.gram, state.options.shrinkage);
    return absl::OkStatus();
  }));
  problem.gram = shrunk.view();
  problem.device_gram = nullptr;  // which is the given one
  return problem;
}

absl::StatusOr<double> TimedLoss(SolveState& state, const Mask& mask) {
  const absl::Time begin = state.limits.now();
  SPARSEFW_ASSIGN_OR_RETURN(const double loss, state.engine->Loss(mask));
  state.limits.LossEnded(begin);
  return loss;
}

bool TimeToBegin(SolveState& state, int losses) {
  if (state.limits.stopped()) {
    state.result.stop_cause = StopCause::kCancelled;
  } else if (!state.limits.TimeForLosses(losses)) {
    state.result.stop_cause = StopCause::kDeadline;
  } else {
    return true;
  }
  return false;
}

bool KeepsFixed(const SolveState& state) {
  const auto kept = state.result.mask.bytes();
  const auto fixed = state.fixed.bytes();
  return std::equal(kept.begin(), kept.end(), fixed.begin(),
                    [](std::byte k, std::byte f) { return (f & ~k) == std::byte{0}; });
}

// In exact arithmetic L(M_t) - g_t never exceeds the loss of a mask that keeps the fixed set. In
// floating point it may, by the error of the iterates: then the mask is optimal to that accuracy
// and its loss is the bound. It exceeds the loss by more only where G is not positive
// semi-definite: L is not convex then and nothing is known. A mask that gave up fixed weights is
// not what the bound is about.
double Certificate(const SolveState& state) {
  if (!state.fixed_kept) return 0;
  const double loss = state.result.final_loss;
  const double bound = std::max(0.0, state.stats.lower_bound);
  if (bound <= loss) return bound;
  const double rounding = 1e-4 * std::abs(loss) + 1e-6 * state.result.full_loss;
  return bound <= loss + rounding ? std::max(0.0, loss) : 0;
}

double NotNegative(double loss) { return std::max(loss, 0.0); }

void Notify(const SolveState& state) {
  if (state.given.observer == nullptr) return;
  const StepStats& stats = state.stats;
  const SolveResult& result = state.result;
  state.given.observer->OnReport(
      {.iteration = stats.iteration,
       .iterations_total = state.one_shot() ? 0 : state.options.iterations,
       .relaxed_loss = NotNegative(stats.relaxed_loss),
       .gap = stats.gap,
       .step_size = stats.step_size,
       .threshold_residual = state.threshold_residual,
       .rounded_loss = result.rounded_loss,
       .best_loss = result.final_loss,
       .warm_start_loss = result.warm_start_loss,
       .lower_bound = Certificate(state),
       .swaps = result.swaps,
       .sweep_point = state.given.sweep_point,
       .elapsed = state.limits.Elapsed()});
}

absl::StatusOr<SolveResult> Finish(SolveState& state) {
  SolveResult& result = state.result;
  for (double* loss : {&result.full_loss, &result.warm_start_loss, &result.rounded_loss,
                       &result.final_loss, &result.reconstructed_loss, &result.joint.start_loss}) {
    const bool new_weights = loss == &result.reconstructed_loss || loss == &result.joint.start_loss;
    const double start = new_weights ? NotNegative(result.final_loss) : 0;
    SPARSEFW_RETURN_IF_ERROR(CheckNotNegative(*loss, start, state.problem));
    *loss = NotNegative(*loss);
  }
  SPARSEFW_RETURN_IF_ERROR(MeasureUnshrunk(state));
  const StepStats& stats = state.stats;
  result.kept_count = result.mask.CountKept();
  result.iterations = stats.iteration;
  if (!state.one_shot()) {
    result.relaxed_loss = stats.relaxed_loss;
    result.drift = stats.drift;
    result.screening = stats.engine.screening;
    result.lower_bound = Certificate(state);
  }
  result.relaxed_loss = NotNegative(result.relaxed_loss);
  if (result.warm_start_loss > 0) {
    const bool new_weights = HasOwnWeights(state.options.method) || result.joint.searched;
    const double loss = new_weights ? result.reconstructed_loss : result.final_loss;
    result.relative_reduction = 1 - loss / result.warm_start_loss;
  }
  if (result.joint.start_loss > 0) {
    result.joint.reduction = 1 - result.reconstructed_loss / result.joint.start_loss;
  }
  result.solve_time = state.limits.Elapsed() - result.load_time;
  return std::move(result);
}

}  // namespace sparsefw
