// The joint search of mask and weights, from the best mask with its weights solved.
#include <algorithm>
#include <optional>
#include <utility>

#include "core/src/alps/alps.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/solver/solve_run.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

// In evaluations of the loss, as in solve_after.cc: two products and the first rows;
// afterwards solving the weights, the product that decides about rows, and the
// losses of weights and mask.
constexpr int kLossesToSearch = 12;
constexpr int kLossesAfterSearch = 9;
constexpr int kLossesAfterSolving = 5;

// Enough for a start: what is left to find, the search finds sooner.
constexpr alps::Effort kShortAlps = {.settled = 0.1, .single = true, .steps = 2};

}  // namespace

absl::Status SolveRun::SearchJointly() {
  // No time, or a stop, before the start's own weights were solved.
  if (result_.weights.size() == 0) return absl::OkStatus();
  if (result_.stop_cause == StopCause::kCancelled) return absl::OkStatus();
  result_.joint.searched = true;
  result_.joint.start_loss = result_.reconstructed_loss;
  if (!TimeToBegin(kLossesToSearch)) return absl::OkStatus();
  Notify();  // the weights of the start are there; the search is silent
  const SolveOptions& options = context_.options;
  const std::optional<alps::PrunedLayer> other = OtherStart();
  const Mask& mask = other ? other->mask : result_.mask;
  const Matrix<float>& weights = other ? other->weights : result_.weights;
  SPARSEFW_ASSIGN_OR_RETURN(const Mask fixed, FixedInSearch(mask, weights));
  absl::StatusOr<JointResult> found = engine_->SearchJointly(
      mask, {.options = options.joint_options,
             .fixed = &fixed,
             .weights = &weights,
             .out_of_time = [this] { return !TimeForLosses(kLossesAfterSearch); },
             .solving_out_of_time = [this] { return !TimeForLosses(kLossesAfterSolving); }});
  if (absl::IsCancelled(found.status())) {
    result_.stop_cause = StopCause::kCancelled;
    return absl::OkStatus();
  }
  SPARSEFW_RETURN_IF_ERROR(found.status());
  result_.joint.converged = found->converged;
  if (Stopped()) {
    result_.stop_cause = StopCause::kCancelled;
  } else if (!found->converged && !TimeForLosses(kLossesAfterSearch)) {
    result_.stop_cause = StopCause::kDeadline;
  }
  if (found->exchanges > 0 || other) SPARSEFW_RETURN_IF_ERROR(TakeJoint(*std::move(found)));
  Notify();
  return absl::OkStatus();
}

// By the scores of the start's weights, which are gone before the search takes memory.
absl::StatusOr<Mask> SolveRun::FixedInSearch(const Mask& mask, const Matrix<float>& weights) const {
  const SolveOptions& options = context_.options;
  SPARSEFW_ASSIGN_OR_RETURN(const Matrix<float> scores,
                            ComputeSaliency(weights.view(), DiagonalOf(context_.problem.gram),
                                            {.method = SaliencyMethod::kWanda}));
  return FixedSet(scores.view(), mask, context_.problem.pattern,
                  options.keep_fixed ? options.alpha : 0);
}

// The result of a few iterations of ALPS where it loses less than the start. What stops it, or
// speaks against it, leaves the search where it is.
std::optional<alps::PrunedLayer> SolveRun::OtherStart() {
  if (context_.options.method == Method::kAlps) return std::nullopt;
  const ParallelContext limited(context_.options.threads, context_.stop,
                                [this] { return !TimeForLosses(kLossesToSearch); });
  absl::StatusOr<alps::PrunedLayer> pruned = alps::Prune(context_.problem, kShortAlps, limited);
  if (!pruned.ok()) return std::nullopt;
  const absl::StatusOr<double> loss = engine_->LossOfWeights(pruned->weights);
  if (!loss.ok() || !(*loss < result_.reconstructed_loss)) return std::nullopt;
  return *std::move(pruned);
}

absl::Status SolveRun::TakeJoint(JointResult found) {
  // Found from scratch by the search itself, unless it was stopped.
  const absl::StatusOr<double> loss =
      Stopped() ? engine_->LossOfWeights(found.weights) : absl::StatusOr<double>(found.loss);
  absl::StatusOr<double> mask_loss = TimedLoss(found.mask);
  for (const absl::Status& status : {loss.status(), mask_loss.status()}) {
    if (absl::IsCancelled(status)) {
      result_.stop_cause = StopCause::kCancelled;
    } else {
      SPARSEFW_RETURN_IF_ERROR(status);
    }
  }
  // After a cancel what the search knows has to do; of the mask alone it knows nothing,
  // and that of the start's is said.
  const double known = loss.ok() ? *loss : found.loss;
  if (!(known < result_.reconstructed_loss)) return absl::OkStatus();
  result_.reconstructed_loss = known;
  if (mask_loss.ok()) result_.final_loss = *mask_loss;
  result_.mask = std::move(found.mask);
  result_.weights = std::move(found.weights);
  result_.joint.exchanges = found.exchanges;
  result_.candidate = CandidateKind::kJoint;
  fixed_kept_ = fixed_kept_ && Keeps(result_.mask, fixed_);
  return absl::OkStatus();
}

}  // namespace sparsefw
