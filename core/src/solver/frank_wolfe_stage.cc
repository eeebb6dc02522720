// Frank-Wolfe steps between report points.
#include <algorithm>
#include <utility>

#include "core/src/solver/stages.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

// A share of the loss that a mask's is compared with.
constexpr double kLeastShareOfLoss = 1.0 / 16;

// Forming the first product takes about as long as a loss, and the mask of a first
// step needs one more.
constexpr int kLossesToIterate = 2;

class FrankWolfe {
 public:
  FrankWolfe(SolveState& state, CheckpointLog& log)
      : state_(state), log_(log), engine_(*state.engine), options_(state.options) {}

  absl::Status Run();

 private:
  absl::Status Begin();
  absl::StatusOr<bool> TakeBatch();
  absl::Status Report();
  absl::StatusOr<double> LossOf(const Mask& mask);
  absl::Status MeasureDrift();
  int64_t BatchSize() const;

  SolveState& state_;
  CheckpointLog& log_;
  Engine& engine_;
  const SolveOptions& options_;
};

absl::Status FrankWolfe::Run() {
  SPARSEFW_RETURN_IF_ERROR(Begin());
  bool more = true;
  while (more) {
    SPARSEFW_ASSIGN_OR_RETURN(more, TakeBatch());
  }
  if (state_.last_report != state_.stats.iteration) SPARSEFW_RETURN_IF_ERROR(Report());
  return MeasureDrift();
}

absl::Status FrankWolfe::Begin() {
  const absl::Time begin = state_.limits.now();
  if (log_.resumes()) {
    SPARSEFW_RETURN_IF_ERROR(log_.RestoreEngine());
  } else {
    // Takes no step; engines convert their inputs now at the latest.
    SPARSEFW_ASSIGN_OR_RETURN(state_.stats, engine_.Step({.rule = options_.step_rule}));
  }
  state_.result.load_time += state_.limits.now() - begin;
  return absl::OkStatus();
}

// Returns false when there is nothing more to do, and why in stop_cause.
absl::StatusOr<bool> FrankWolfe::TakeBatch() {
  StepStats& stats = state_.stats;
  Limits& limits = state_.limits;
  if (stats.iteration >= options_.iterations) return false;
  if (limits.stopped()) return absl::CancelledError("stopped between two batches");
  if (!limits.TimeForStep()) {
    state_.result.stop_cause = StopCause::kDeadline;
    return false;
  }
  const int64_t before = stats.iteration;
  const absl::Time begin = limits.now();
  SPARSEFW_ASSIGN_OR_RETURN(
      stats, engine_.Step(
                 {.count = BatchSize(), .rule = options_.step_rule, .rel_gap = options_.rel_gap}));
  if (stats.iteration < before) {
    return InvalidCheckpoint(
        "the engine's part of a checkpoint must be of iteration %d; it went on to %d", before,
        stats.iteration);
  }
  if (stats.iteration > before) limits.StepsEnded(begin, stats.iteration - before);
  if (stats.reached_gap) {
    state_.result.stop_cause = StopCause::kGap;
    return false;
  }
  const bool at_end = stats.iteration == options_.iterations;
  if (!at_end && stats.iteration % options_.report_every != 0) return true;
  SPARSEFW_RETURN_IF_ERROR(Report());
  if (!at_end) SPARSEFW_RETURN_IF_ERROR(log_.Offer(Stage::kIterate));
  return true;
}

// Up to the next report point, for engines do best with many steps at once and
// look at the stop signal themselves.
int64_t FrankWolfe::BatchSize() const {
  const int64_t iteration = state_.stats.iteration;
  if (iteration == 0) return 1;
  const int64_t to_report = options_.report_every - iteration % options_.report_every;
  return state_.limits.StepsOfBatch(std::min(options_.iterations - iteration, to_report));
}

absl::Status FrankWolfe::Report() {
  SolveResult& result = state_.result;
  const absl::Time begin = state_.limits.now();
  SPARSEFW_ASSIGN_OR_RETURN(RoundedMask rounded, engine_.Round());
  state_.limits.RoundingEnded(begin);
  SPARSEFW_ASSIGN_OR_RETURN(result.rounded_loss, LossOf(rounded.mask));
  if (result.rounded_loss < result.final_loss) {
    result.final_loss = result.rounded_loss;
    result.mask = rounded.mask;
    result.candidate = CandidateKind::kRounded;
  }
  state_.last_tried = std::move(rounded.mask);
  state_.last_report = state_.stats.iteration;
  state_.threshold_residual = rounded.threshold_residual;
  Notify(state_);
  return absl::OkStatus();
}

// Masks settle long before the iteration ends; the last one is not evaluated twice, and
// one that differs from it in few weights not from scratch.
absl::StatusOr<double> FrankWolfe::LossOf(const Mask& mask) {
  const double last = state_.result.rounded_loss;
  if (mask == state_.last_tried) return last;
  const absl::Time begin = state_.limits.now();
  SPARSEFW_ASSIGN_OR_RETURN(const double loss,
                            engine_.LossNear(mask, {.mask = state_.last_tried, .loss = last}));
  state_.limits.LossEnded(begin);
  // A difference of much larger losses has their rounding, too large for this one.
  const double largest = std::max(last, state_.result.warm_start_loss);
  return loss >= kLeastShareOfLoss * largest ? loss : TimedLoss(state_, mask);
}

// Jobs too short for a refresh have not been compared with a dense product yet, nor those whose
// last iterations needed none.
// A stop that comes so late changes nothing else.
absl::Status FrankWolfe::MeasureDrift() {
  if (state_.stats.drift > 0 || state_.result.stop_cause == StopCause::kDeadline) {
    return absl::OkStatus();
  }
  const absl::StatusOr<StepStats> stats =
      engine_.Step({.rule = options_.step_rule, .measure_drift = true});
  if (stats.ok()) state_.stats.drift = stats->drift;
  return absl::IsCancelled(stats.status()) ? absl::OkStatus() : stats.status();
}

}  // namespace

absl::Status RunFrankWolfe(SolveState& state, CheckpointLog& log) {
  if (!log.resumes() && !state.limits.TimeForLosses(kLossesToIterate)) {
    state.result.stop_cause = StopCause::kDeadline;
    return absl::OkStatus();
  }
  absl::Status status = FrankWolfe(state, log).Run();
  // The mask of an earlier report point, or the warm start, stands.
  if (!absl::IsCancelled(status)) return status;
  state.result.stop_cause = StopCause::kCancelled;
  return absl::OkStatus();
}

}  // namespace sparsefw
