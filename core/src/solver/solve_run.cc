#include "core/src/solver/solve_run.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw {
namespace {

SaliencyOptions SaliencyOf(const SolveOptions& options) {
  SaliencyOptions saliency = options.warm_start;
  if (options.method == Method::kMagnitude) saliency.method = SaliencyMethod::kMagnitude;
  if (options.method == Method::kWanda) saliency.method = SaliencyMethod::kWanda;
  if (options.method == Method::kRia) saliency.method = SaliencyMethod::kRia;
  return saliency;
}

SolveContext With(const SolveContext& context, const Problem& problem,
                  const SolveOptions& options) {
  return {.problem = problem,
          .options = options,
          .backend = context.backend,
          .cache = context.cache,
          .observer = context.observer,
          .stop = context.stop,
          .now = context.now,
          .checkpoints = context.checkpoints,
          .sweep_point = context.sweep_point};
}

absl::Status CancelledWithoutMask() {
  return WithReason(absl::CancelledError("the solve was cancelled before there was a mask"),
                    "CANCELLED");
}

}  // namespace

std::vector<double> DiagonalOf(ConstMatrixView gram) {
  std::vector<double> diagonal(static_cast<size_t>(gram.rows()));
  const size_t size = SizeOf(gram.dtype());
  for (int64_t i = 0; i < gram.rows(); ++i) {
    ConvertToDouble(gram.row_bytes(i) + static_cast<size_t>(i) * size, gram.dtype(), 1,
                    &diagonal[static_cast<size_t>(i)]);
  }
  return diagonal;
}

SolveRun::SolveRun(const SolveContext& context)
    : options_(WithStepRule(context.options)),
      given_gram_(context.problem.gram),
      problem_(context.problem),
      context_(With(context, problem_, options_)),
      start_(context.now()),
      last_checkpoint_(start_) {}

absl::StatusOr<SolveResult> SolveRun::Run() {
  absl::Status status = OpenCheckpoints();
  if (status.ok()) status = Prepare();
  if (status.ok() && context_.options.method == Method::kSparseGpt) status = RunSparseGpt();
  if (status.ok() && context_.options.method == Method::kAlps) status = RunAlps();
  if (!status.ok()) {
    return absl::IsCancelled(status) ? CancelledWithoutMask() : status;
  }
  SPARSEFW_RETURN_IF_ERROR(RestoreSolver());
  SPARSEFW_RETURN_IF_ERROR(RunStages());
  SPARSEFW_RETURN_IF_ERROR(MeasureNewWeights());
  return Finish();
}

// A checkpoint stands between two stages where the first has taken long.
absl::Status SolveRun::RunStages() {
  const bool swaps = context_.options.swaps;
  if (!one_shot() && next_ == Stage::kIterate) SPARSEFW_RETURN_IF_ERROR(Iterate());
  if (swaps && next_ != Stage::kReconstruct) {
    if (!one_shot() && next_ == Stage::kIterate) {
      SPARSEFW_RETURN_IF_ERROR(OfferCheckpoint(Stage::kRefine));
    }
    SPARSEFW_RETURN_IF_ERROR(Refine());
  }
  const bool joint = context_.options.joint;
  if (!context_.options.reconstruct && !joint) return absl::OkStatus();
  if ((swaps || !one_shot()) && next_ != Stage::kReconstruct) {
    SPARSEFW_RETURN_IF_ERROR(OfferCheckpoint(Stage::kReconstruct));
  }
  SPARSEFW_RETURN_IF_ERROR(Reconstruct());
  return joint ? SearchJointly() : absl::OkStatus();
}

absl::Status SolveRun::Prepare() {
  SPARSEFW_RETURN_IF_ERROR(ValidateOptions(context_.options));
  if (context_.options.joint && !context_.backend.has_joint_search()) {
    return Refuse(absl::StatusCode::kUnimplemented, "OPTION_INVALID",
                  "backend \"%s\" has no joint search of mask and weights; use cpu",
                  context_.backend.name());
  }
  const ParallelContext parallel(context_.options.threads, context_.stop);
  const absl::Status status = parallel.Run([&] {
    SPARSEFW_RETURN_IF_ERROR(ValidateProblem(context_.problem));
    SPARSEFW_RETURN_IF_ERROR(CheckLimits());
    ShrinkGram();
    return ChooseWarmStart();
  });
  SPARSEFW_RETURN_IF_ERROR(status);
  SPARSEFW_RETURN_IF_ERROR(CheckLimits());
  SPARSEFW_RETURN_IF_ERROR(LoadEngine());
  result_.load_time = context_.now() - start_;
  return EvaluateStart();
}

// Into a copy, since others may read the caller's.
void SolveRun::ShrinkGram() {
  if (options_.shrinkage == 0) return;
  ShrunkGram& shrunk = context_.cache.shrunk;
  if (shrunk.empty()) shrunk = ShrunkGram(given_gram_, options_.shrinkage);
  problem_.gram = shrunk.view();
  problem_.device_gram = nullptr;  // which is the given one
}

// The scores as a matrix are needed here only: what rounds later asks for single ones.
absl::Status SolveRun::ChooseWarmStart() {
  const Problem& problem = context_.problem;
  const Pattern& pattern = problem.pattern;
  Matrix<float> own;
  ConstMatrixView scores = problem.saliency;
  if (one_shot() || scores.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(saliency_,
                              MakeSaliencySource(problem.weights, DiagonalOf(problem.gram),
                                                 SaliencyOf(context_.options)));
    own = ScoresOf(saliency_);
    scores = own.view();
  } else {
    saliency_ = scores;
  }
  if (!one_shot() && problem.warm_mask != nullptr) {
    warm_ = *problem.warm_mask;
  } else {
    SPARSEFW_ASSIGN_OR_RETURN(warm_, TopScores(scores, pattern));
  }
  // Without iteration and swaps nothing is free to move.
  if (one_shot() && !context_.options.swaps) {
    fixed_ = warm_;
    return absl::OkStatus();
  }
  SPARSEFW_ASSIGN_OR_RETURN(fixed_, FixedSet(scores, warm_, pattern, context_.options.alpha));
  return absl::OkStatus();
}

absl::Status SolveRun::LoadEngine() {
  LayerCache& cache = context_.cache;
  if (cache.engine == nullptr) {
    const EngineOptions options = {.threads = context_.options.threads,
                                   .stop = context_.stop,
                                   .product_precision = context_.options.product_precision};
    SPARSEFW_ASSIGN_OR_RETURN(cache.engine, context_.backend.CreateEngine(options));
  }
  engine_ = cache.engine.get();
  const Problem& problem = context_.problem;
  SPARSEFW_RETURN_IF_ERROR(engine_->Load({.weights = problem.weights,
                                          .gram = problem.gram,
                                          .pattern = problem.pattern,
                                          .saliency = saliency_,
                                          .warm = &warm_,
                                          .fixed = &fixed_,
                                          .reused = cache.reused,
                                          .device_gram = problem.device_gram}));
  return CheckLimits();
}

// The warm start is the first mask there is.
absl::Status SolveRun::EvaluateStart() {
  LayerCache& cache = context_.cache;
  if (!cache.full_loss) {
    SPARSEFW_ASSIGN_OR_RETURN(cache.full_loss, TimedLoss(Mask(warm_.rows(), warm_.cols())));
  }
  result_.full_loss = *cache.full_loss;
  if (!std::isfinite(result_.full_loss)) {
    return WithReason(
        absl::InvalidArgumentError("the loss of pruning everything overflows float64; "
                                   "scale weights or gram down"),
        "NON_FINITE");
  }
  SPARSEFW_RETURN_IF_ERROR(CheckLimits());
  if (cache.warm != warm_) {
    SPARSEFW_ASSIGN_OR_RETURN(cache.warm_loss, TimedLoss(warm_));
    cache.warm = warm_;
  }
  result_.warm_start_loss = cache.warm_loss;
  result_.mask = warm_;
  result_.final_loss = result_.warm_start_loss;
  result_.rounded_loss = result_.warm_start_loss;
  result_.relaxed_loss = result_.warm_start_loss;
  last_tried_ = warm_;
  stats_.relaxed_loss = result_.warm_start_loss;  // the warm start is M_0
  return absl::OkStatus();
}

absl::Status SolveRun::CheckLimits() const {
  if (context_.stop != nullptr && context_.stop->requested()) {
    return CancelledWithoutMask();
  }
  if (context_.now() >= context_.options.deadline) {
    return WithReason(absl::DeadlineExceededError("the deadline passed before there was a mask"),
                      "DEADLINE_EXCEEDED");
  }
  return absl::OkStatus();
}

absl::Status SolveRun::Iterate() {
  // Forming the first product takes about as long as a loss, and the mask of a first
  // step needs one more.
  if (!resume_.has_value() &&
      context_.now() + 2 * context_.cache.loss_time >= context_.options.deadline) {
    result_.stop_cause = StopCause::kDeadline;
    return absl::OkStatus();
  }
  absl::Status status = [&]() -> absl::Status {
    SPARSEFW_RETURN_IF_ERROR(BeginIteration());
    bool more = true;
    while (more) {
      SPARSEFW_ASSIGN_OR_RETURN(more, TakeBatch());
    }
    if (last_report_ != stats_.iteration) SPARSEFW_RETURN_IF_ERROR(Report());
    return MeasureDrift();
  }();
  // The mask of an earlier report point, or the warm start, stands.
  if (!absl::IsCancelled(status)) return status;
  result_.stop_cause = StopCause::kCancelled;
  return absl::OkStatus();
}

absl::Status SolveRun::BeginIteration() {
  const absl::Time begin = context_.now();
  if (resume_.has_value()) {
    SPARSEFW_RETURN_IF_ERROR(RestoreEngine());
  } else {
    // Takes no step; engines convert their inputs now at the latest.
    SPARSEFW_ASSIGN_OR_RETURN(stats_, engine_->Step({.rule = context_.options.step_rule}));
  }
  result_.load_time += context_.now() - begin;
  return absl::OkStatus();
}

// Returns false when there is nothing more to do, and why in stop_cause.
absl::StatusOr<bool> SolveRun::TakeBatch() {
  const SolveOptions& options = context_.options;
  if (stats_.iteration >= options.iterations) return false;
  if (context_.stop != nullptr && context_.stop->requested()) {
    return absl::CancelledError("stopped between two batches");
  }
  if (DeadlineNear()) {
    result_.stop_cause = StopCause::kDeadline;
    return false;
  }
  const int64_t before = stats_.iteration;
  const absl::Time begin = context_.now();
  SPARSEFW_ASSIGN_OR_RETURN(
      stats_,
      engine_->Step({.count = BatchSize(), .rule = options.step_rule, .rel_gap = options.rel_gap}));
  if (stats_.iteration < before) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID",
                  "the engine's part of a checkpoint must be of iteration %d; it went on to %d",
                  before, stats_.iteration);
  }
  const int64_t taken = stats_.iteration - before;
  if (taken > 0) step_time_ = (context_.now() - begin) / taken;
  if (stats_.reached_gap) {
    result_.stop_cause = StopCause::kGap;
    return false;
  }
  const bool report_point =
      stats_.iteration % options.report_every == 0 || stats_.iteration == options.iterations;
  if (!report_point) return true;
  SPARSEFW_RETURN_IF_ERROR(Report());
  if (stats_.iteration < options.iterations) {
    SPARSEFW_RETURN_IF_ERROR(OfferCheckpoint(Stage::kIterate));
  }
  return true;
}

// Jobs too short for a refresh have not been compared with a dense product yet, nor those whose
// last iterations needed none.
// A stop that comes so late changes nothing else.
absl::Status SolveRun::MeasureDrift() {
  if (stats_.drift > 0 || result_.stop_cause == StopCause::kDeadline) return absl::OkStatus();
  const absl::StatusOr<StepStats> stats =
      engine_->Step({.rule = context_.options.step_rule, .measure_drift = true});
  if (stats.ok()) stats_.drift = stats->drift;
  return absl::IsCancelled(stats.status()) ? absl::OkStatus() : stats.status();
}

// Up to the next report point, for engines do best with many steps at once and
// look at the stop signal themselves; with a deadline for no more than half of
// the time that is left, since steps do not all take the same.
int64_t SolveRun::BatchSize() const {
  const SolveOptions& options = context_.options;
  const int64_t to_end = options.iterations - stats_.iteration;
  const int64_t to_report = options.report_every - stats_.iteration % options.report_every;
  const int64_t limit = std::min(to_end, to_report);
  if (stats_.iteration == 0) return 1;
  if (step_time_ <= absl::ZeroDuration()) {
    // After a checkpoint nothing has been measured yet.
    const bool unknown = resume_.has_value() && options.deadline < absl::InfiniteFuture();
    return unknown ? 1 : limit;
  }
  const absl::Duration left =
      context_.options.deadline - context_.now() - context_.cache.loss_time - round_time_;
  const double by_time = absl::FDivDuration(left / 2, step_time_);  // may be infinite
  return by_time >= static_cast<double>(limit)
             ? limit
             : std::max<int64_t>(1, static_cast<int64_t>(by_time));
}

// True when one more step would leave too little time for a rounding and a loss.
bool SolveRun::DeadlineNear() const {
  return context_.now() + step_time_ + round_time_ + context_.cache.loss_time >=
         context_.options.deadline;
}

}  // namespace sparsefw
