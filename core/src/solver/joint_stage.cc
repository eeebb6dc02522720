// The joint search of mask and weights, from the best mask with its weights solved.
#include <optional>
#include <utility>

#include "core/src/alps/alps.h"
#include "core/src/linalg/finite.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/solver/solve_state.h"
#include "sparsefw/saliency.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

// Times in evaluations of the loss (swaps.cc). The search needs two products and the first rows.
// Solving the weights comes after it, then the product that decides about rows, then the losses of
// weights and mask.
constexpr int kLossesToSearch = 12;
constexpr int kLossesAfterSearch = 9;
constexpr int kLossesAfterSolving = 5;

// Enough for a start: what is left to find, the search finds sooner.
constexpr alps::Effort kShortAlps = {.settled = 0.1, .single = true, .steps = 2};

// Where the host chooses. The scores come from the start's weights. Those are gone before the
// search takes memory.
absl::StatusOr<Mask> FixedInSearch(const SolveState& state, const Mask& mask,
                                   const Matrix<float>& weights, double alpha) {
  absl::StatusOr<Mask> fixed;
  SPARSEFW_RETURN_IF_ERROR(ParallelContext(state.options.threads).Run([&]() -> absl::Status {
    SPARSEFW_ASSIGN_OR_RETURN(const Matrix<float> scores,
                              ComputeSaliency(weights.view(), DiagonalOf(state.problem.gram),
                                              {.method = SaliencyMethod::kWanda}));
    fixed = FixedSet(scores.view(), mask, state.problem.pattern, alpha);
    return absl::OkStatus();
  }));
  return fixed;
}

// The result of a few iterations of ALPS where it loses less than the start. The start stays where
// ALPS is stopped, cannot factorise G or loses more. Another error is one of the job: a result
// that depends on it would be another at the next run.
absl::StatusOr<std::optional<alps::PrunedLayer>> OtherStart(const SolveState& state) {
  if (state.options.method == Method::kAlps) return std::nullopt;
  const ParallelContext limited(state.options.threads, state.given.stop,
                                [&] { return !state.limits.TimeForLosses(kLossesToSearch); });
  const absl::StatusOr<Problem> problem = ShrunkProblem(state, limited);
  if (!problem.ok()) return std::nullopt;
  absl::StatusOr<alps::PrunedLayer> pruned = alps::Prune(*problem, kShortAlps, limited);
  if (!pruned.ok()) return std::nullopt;
  const absl::StatusOr<double> loss = state.engine->LossOfWeights(pruned->weights);
  if (absl::IsCancelled(loss.status())) return std::nullopt;
  SPARSEFW_RETURN_IF_ERROR(loss.status());
  if (!(*loss < state.result.reconstructed_loss)) return std::nullopt;
  return *std::move(pruned);
}

absl::Status TakeJoint(SolveState& state, JointResult found) {
  SolveResult& result = state.result;
  // Found from scratch by the search itself, unless it was stopped.
  const absl::StatusOr<double> loss = state.limits.stopped()
                                          ? state.engine->LossOfWeights(found.weights)
                                          : absl::StatusOr<double>(found.loss);
  const absl::StatusOr<double> mask_loss = TimedLoss(state, found.mask);
  for (const absl::Status& status : {loss.status(), mask_loss.status()}) {
    if (absl::IsCancelled(status)) {
      result.stop_cause = StopCause::kCancelled;
    } else {
      SPARSEFW_RETURN_IF_ERROR(status);
    }
  }
  // After a cancel the loss that the search knows is used. It knows no loss of the mask alone, so
  // that of the start's mask stays.
  const double known = loss.ok() ? *loss : found.loss;
  if (!(known < result.reconstructed_loss)) return absl::OkStatus();
  result.reconstructed_loss = known;
  if (mask_loss.ok()) result.final_loss = *mask_loss;
  result.mask = std::move(found.mask);
  result.weights = std::move(found.weights);
  result.joint.exchanges = found.exchanges;
  result.candidate = CandidateKind::kJoint;
  state.fixed_kept = state.fixed_kept && KeepsFixed(state);
  return absl::OkStatus();
}

}  // namespace

absl::Status SearchJointly(SolveState& state) {
  SolveResult& result = state.result;
  const Limits& limits = state.limits;
  // No time, or a stop, before the start's own weights were solved.
  if (result.weights.size() == 0) return absl::OkStatus();
  if (result.stop_cause == StopCause::kCancelled) return absl::OkStatus();
  if (!TimeToBegin(state, kLossesToSearch)) return absl::OkStatus();
  result.joint.searched = true;
  result.joint.start_loss = result.reconstructed_loss;
  Notify(state);  // the weights of the start are there; the search is silent
  SPARSEFW_ASSIGN_OR_RETURN(const std::optional<alps::PrunedLayer> other, OtherStart(state));
  const Mask& mask = other ? other->mask : result.mask;
  const Matrix<float>& weights = other ? other->weights : result.weights;
  const double alpha = state.options.keep_fixed ? state.options.alpha : 0;
  const bool engine_chooses = state.given.backend.chooses_start();
  Mask fixed;
  if (!engine_chooses) {
    SPARSEFW_ASSIGN_OR_RETURN(fixed, FixedInSearch(state, mask, weights, alpha));
  }
  absl::StatusOr<JointResult> found = state.engine->SearchJointly(
      mask, {.options = state.options.joint_options,
             .fixed = engine_chooses ? nullptr : &fixed,
             .alpha = alpha,
             .weights = &weights,
             .out_of_time = [&] { return !limits.TimeForLosses(kLossesAfterSearch); },
             .solving_out_of_time = [&] { return !limits.TimeForLosses(kLossesAfterSolving); }});
  if (absl::IsCancelled(found.status())) {
    result.stop_cause = StopCause::kCancelled;
    return absl::OkStatus();
  }
  SPARSEFW_RETURN_IF_ERROR(found.status());
  result.joint.converged = found->converged;
  if (limits.stopped()) {
    result.stop_cause = StopCause::kCancelled;
  } else if (!found->converged && !limits.TimeForLosses(kLossesAfterSearch)) {
    result.stop_cause = StopCause::kDeadline;
  }
  if (found->exchanges > 0 || other) SPARSEFW_RETURN_IF_ERROR(TakeJoint(state, *std::move(found)));
  Notify(state);
  return absl::OkStatus();
}

}  // namespace sparsefw
