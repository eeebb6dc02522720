#include "server/runner/sweep_results.h"

#include <algorithm>
#include <utility>

#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// The loss of the result that is returned.
double ReturnedLoss(const SolveResult& solved) {
  return solved.weights.size() > 0 ? solved.reconstructed_loss : solved.final_loss;
}

// The stop cause of the whole job: that of a point that was cut short, if any.
StopCause StopOf(const std::vector<SweepOutcome>& outcomes, StopCause of_best) {
  StopCause cause = of_best;
  for (const SweepOutcome& outcome : outcomes) {
    if (absl::IsCancelled(outcome.error)) return StopCause::kCancelled;
    if (outcome.error.ok() && outcome.result.solve.stop_cause == StopCause::kCancelled) {
      return StopCause::kCancelled;
    }
    if (absl::IsDeadlineExceeded(outcome.error)) cause = StopCause::kDeadline;
  }
  return cause;
}

}  // namespace

SweepResults::SweepResults(std::span<const SweepPoint> points, SweepKeep keep, ResultWriter& writer,
                           const ReportFunction& report)
    : points_(points), keep_(keep), writer_(writer), report_(report) {}

SweepResults::Best* SweepResults::BestOf(const Pattern& pattern) {
  for (Best& best : best_) {
    if (points_[best.point].pattern == pattern) return &best;
  }
  return nullptr;
}

absl::Status SweepResults::OnResult(size_t point, absl::StatusOr<SolveResult> result) {
  SweepOutcome& outcome = outcomes_.emplace_back();
  if (!result.ok()) {
    // The other points need the device too.
    if (HasReason(result.status(), "DEVICE_LOST")) return result.status();
    outcome.error = std::move(result).status();
    return absl::OkStatus();
  }
  if (keep_ == SweepKeep::kAll) {
    absl::StatusOr<std::string> mask = writer_.PutMask(result->mask);
    // A mask that cannot be stored, on a full disk say, does not end the others.
    if (!mask.ok()) {
      outcome.error = std::move(mask).status();
      return absl::OkStatus();
    }
    outcome.result.mask = *std::move(mask);
  }
  outcome.result.solve = *result;
  outcome.result.weights_updated = result->weights.size() > 0;
  Best* const best = BestOf(points_[point].pattern);
  if (best == nullptr) {
    best_.push_back({point, *std::move(result)});
  } else if (ReturnedLoss(*result) < ReturnedLoss(best->solved)) {
    *best = {point, *std::move(result)};
  }
  return absl::OkStatus();
}

std::vector<std::string> SweepResults::StoredMasks() const {
  std::vector<std::string> masks;
  for (const SweepOutcome& outcome : outcomes_) {
    if (!outcome.result.mask.empty()) masks.push_back(outcome.result.mask);
  }
  return masks;
}

absl::StatusOr<JobResult> SweepResults::Finish() {
  if (best_.empty()) return outcomes_.front().error;
  if (keep_ == SweepKeep::kBest) {
    for (const Best& best : best_) {
      SPARSEFW_ASSIGN_OR_RETURN(outcomes_[best.point].result.mask,
                                writer_.PutMask(best.solved.mask));
    }
  }
  const Best& best = best_.front();
  JobResult result = outcomes_[best.point].result;
  result.best_point = static_cast<int>(best.point);
  result.solve.stop_cause = StopOf(outcomes_, result.solve.stop_cause);
  writer_.PutWeights(best.solved, &result);
  result.sweep = std::move(outcomes_);
  return result;
}

}  // namespace sparsefw::server
