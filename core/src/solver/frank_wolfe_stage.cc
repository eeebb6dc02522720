// Frank-Wolfe steps between report points.
#include <algorithm>
#include <utility>

#include "core/src/solver/checkpoint_log.h"
#include "core/src/solver/solve_state.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

// A share of the loss that a mask's is compared with.
constexpr double kLeastShareOfLoss = 1.0 / 16;

// Forming the first product takes about as long as a loss, and the mask of a first
// step needs one more.
constexpr int kLossesToIterate = 2;

absl::Status Begin(SolveState& state, CheckpointLog& log) {
  const absl::Time begin = state.limits.now();
  if (log.resumes()) {
    SPARSEFW_RETURN_IF_ERROR(log.RestoreEngine());
  } else {
    // Takes no step; engines convert their inputs now at the latest.
    SPARSEFW_ASSIGN_OR_RETURN(state.stats, state.engine->Step({.rule = state.options.step_rule}));
  }
  state.result.load_time += state.limits.now() - begin;
  return absl::OkStatus();
}

// Up to the next report point, for engines do best with many steps at once and
// look at the stop signal themselves.
int64_t BatchSize(const SolveState& state) {
  const int64_t iteration = state.stats.iteration;
  if (iteration == 0) return 1;
  const int64_t to_report = state.options.report_every - iteration % state.options.report_every;
  return state.limits.StepsOfBatch(std::min(state.options.iterations - iteration, to_report));
}

// Masks settle long before the iteration ends; the last one is not evaluated twice, and
// one that differs from it in few weights not from scratch.
absl::StatusOr<double> LossOf(SolveState& state, const Mask& mask) {
  const double last = state.result.rounded_loss;
  if (mask == state.last_tried) return last;
  const absl::Time begin = state.limits.now();
  SPARSEFW_ASSIGN_OR_RETURN(const double loss,
                            state.engine->LossNear(mask, {.mask = state.last_tried, .loss = last}));
  state.limits.LossEnded(begin);
  // A difference of much larger losses has their rounding, too large for this one.
  const double largest = std::max(last, state.result.warm_start_loss);
  return loss >= kLeastShareOfLoss * largest ? loss : TimedLoss(state, mask);
}

absl::Status Report(SolveState& state) {
  SolveResult& result = state.result;
  const absl::Time begin = state.limits.now();
  SPARSEFW_ASSIGN_OR_RETURN(RoundedMask rounded, state.engine->Round());
  state.limits.RoundingEnded(begin);
  SPARSEFW_ASSIGN_OR_RETURN(result.rounded_loss, LossOf(state, rounded.mask));
  if (result.rounded_loss < result.final_loss) {
    result.final_loss = result.rounded_loss;
    result.mask = rounded.mask;
    result.candidate = CandidateKind::kRounded;
  }
  state.last_tried = std::move(rounded.mask);
  state.last_report = state.stats.iteration;
  state.threshold_residual = rounded.threshold_residual;
  Notify(state);
  return absl::OkStatus();
}

// Returns false when there is nothing more to do, and why in stop_cause.
absl::StatusOr<bool> TakeBatch(SolveState& state, CheckpointLog& log) {
  StepStats& stats = state.stats;
  Limits& limits = state.limits;
  if (stats.iteration >= state.options.iterations) return false;
  if (limits.stopped()) return absl::CancelledError("stopped between two batches");
  if (!limits.TimeForStep()) {
    state.result.stop_cause = StopCause::kDeadline;
    return false;
  }
  const int64_t before = stats.iteration;
  const absl::Time begin = limits.now();
  SPARSEFW_ASSIGN_OR_RETURN(stats, state.engine->Step({.count = BatchSize(state),
                                                       .rule = state.options.step_rule,
                                                       .rel_gap = state.options.rel_gap}));
  if (stats.iteration < before) {
    return InvalidCheckpoint(
        "the engine's part of a checkpoint must be of iteration %d; it went on to %d", before,
        stats.iteration);
  }
  if (stats.iteration > before) limits.StepsEnded(begin, stats.iteration - before);
  if (stats.reached_gap) {
    state.result.stop_cause = StopCause::kGap;
    return false;
  }
  const bool at_end = stats.iteration == state.options.iterations;
  if (!at_end && stats.iteration % state.options.report_every != 0) return true;
  SPARSEFW_RETURN_IF_ERROR(Report(state));
  if (!at_end) SPARSEFW_RETURN_IF_ERROR(log.Offer(Stage::kIterate));
  return true;
}

// Jobs too short for a refresh have not been compared with a dense product yet, nor those whose
// last iterations needed none.
// A stop that comes so late changes nothing else.
absl::Status MeasureDrift(SolveState& state) {
  if (state.stats.drift > 0 || state.result.stop_cause == StopCause::kDeadline) {
    return absl::OkStatus();
  }
  const absl::StatusOr<StepStats> stats =
      state.engine->Step({.rule = state.options.step_rule, .measure_drift = true});
  if (stats.ok()) state.stats.drift = stats->drift;
  return absl::IsCancelled(stats.status()) ? absl::OkStatus() : stats.status();
}

absl::Status Run(SolveState& state, CheckpointLog& log) {
  SPARSEFW_RETURN_IF_ERROR(Begin(state, log));
  bool more = true;
  while (more) {
    SPARSEFW_ASSIGN_OR_RETURN(more, TakeBatch(state, log));
  }
  if (state.last_report != state.stats.iteration) SPARSEFW_RETURN_IF_ERROR(Report(state));
  return MeasureDrift(state);
}

}  // namespace

absl::Status RunFrankWolfe(SolveState& state, CheckpointLog& log) {
  if (!log.resumes() && !state.limits.TimeForLosses(kLossesToIterate)) {
    state.result.stop_cause = StopCause::kDeadline;
    return absl::OkStatus();
  }
  absl::Status status = Run(state, log);
  // The mask of an earlier report point, or the warm start, stands.
  if (!absl::IsCancelled(status)) return status;
  state.result.stop_cause = StopCause::kCancelled;
  return absl::OkStatus();
}

}  // namespace sparsefw
