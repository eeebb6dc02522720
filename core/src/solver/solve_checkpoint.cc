// Writes and restores checkpoints of a solve: docs/adr/0021-checkpoints.md.
#include <bit>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/src/solver/checkpoint_file.h"
#include "core/src/solver/checkpoint_terms.h"
#include "core/src/solver/solve_run.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw {
namespace {

// The solver's own numbers. All of 8 bytes, so that there is no padding.
struct SolverState {
  int64_t next_stage = 0;
  int64_t iteration = 0;  // from here on: StepStats
  double relaxed_loss = 0;
  double gap = 0;
  double step_size = 0;
  double lower_bound = 0;
  int64_t toggled = 0;
  int64_t reached_gap = 0;
  double drift = 0;
  int64_t capture_failures = 0;
  double full_loss = 0;  // from here on: SolveResult
  double warm_start_loss = 0;
  double rounded_loss = 0;
  double final_loss = 0;
  int64_t swaps = 0;
  int64_t stop_cause = 0;
  int64_t candidate = 0;
  int64_t load_ns = 0;
  int64_t fixed_kept = 0;
  int64_t last_report = 0;
  double threshold_residual = 0;
  int64_t elapsed_ns = 0;
  ScreeningCounts screening;
};
static_assert(sizeof(SolverState) == 25 * sizeof(int64_t));

bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

absl::StatusOr<Mask> ReadMask(StateReader& reader, std::string_view name, int64_t rows,
                              int64_t cols) {
  const auto bytes = static_cast<size_t>(rows * ((cols + 7) / 8));
  SPARSEFW_ASSIGN_OR_RETURN(const std::span<const std::byte> mask, reader.Field(name, bytes));
  return Mask::FromBytes(rows, cols, mask);
}

absl::Status NotOfTheseInputs(std::string_view what, double own, double other) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID",
                "a checkpoint must be of the same weights and gram; its %s is %.17g, that of "
                "these is %.17g",
                what, other, own);
}

absl::Status CheckIteration(int64_t iteration, int64_t iterations) {
  if (iteration >= 0 && iteration <= iterations) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID",
                "the iteration of a checkpoint must be in [0, %d]; got %d", iterations, iteration);
}

absl::Status CheckAtEnd(const StateReader& reader) {
  if (reader.at_end()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID",
                "a checkpoint must end after its last field; more follows");
}

}  // namespace

std::optional<CheckpointInfo> PeekCheckpoint(std::span<const std::byte> bytes) {
  absl::StatusOr<StateReader> fields = OpenUnchecked(bytes);
  SolverState state;
  if (!fields.ok() || !fields->AnyField("terms").ok() ||
      !fields->Read("solver", WritableBytesOf(state)).ok()) {
    return std::nullopt;
  }
  return CheckpointInfo{.iteration = state.iteration, .stage = state.next_stage};
}

// Before anything costs time.
absl::Status SolveRun::OpenCheckpoints() {
  const Checkpoints& checkpoints = context_.checkpoints;
  const bool resumes = !checkpoints.resume.empty();
  if (!resumes && checkpoints.sink == nullptr) return absl::OkStatus();
  if (!context_.backend.checkpoint_tag().empty()) {
    terms_ =
        CheckpointTerms(context_.problem, context_.options, context_.backend, context_.sweep_point);
  }
  if (!resumes) return absl::OkStatus();
  if (terms_.empty()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID",
                  "backend \"%s\" has no checkpoints; got one to resume from",
                  context_.backend.name());
  }
  SPARSEFW_ASSIGN_OR_RETURN(resume_, OpenCheckpoint(checkpoints.resume, context_.stop));
  SPARSEFW_ASSIGN_OR_RETURN(const std::span<const std::byte> terms, resume_->AnyField("terms"));
  return CompareTerms({reinterpret_cast<const char*>(terms.data()), terms.size()}, terms_);
}

// The warm start has been evaluated: its losses say whether the inputs are those
// of the checkpoint. The engine's part is restored in BeginIteration.
absl::Status SolveRun::RestoreSolver() {
  if (!resume_.has_value()) return absl::OkStatus();
  SolverState state;
  SPARSEFW_RETURN_IF_ERROR(resume_->Read("solver", WritableBytesOf(state)));
  SPARSEFW_RETURN_IF_ERROR(CheckIteration(state.iteration, context_.options.iterations));
  if (!SameBits(state.full_loss, result_.full_loss)) {
    return NotOfTheseInputs("loss of pruning everything", result_.full_loss, state.full_loss);
  }
  if (!SameBits(state.warm_start_loss, result_.warm_start_loss)) {
    return NotOfTheseInputs("warm-start loss", result_.warm_start_loss, state.warm_start_loss);
  }
  SPARSEFW_ASSIGN_OR_RETURN(result_.mask,
                            ReadMask(*resume_, "best_mask", warm_.rows(), warm_.cols()));
  SPARSEFW_ASSIGN_OR_RETURN(last_tried_,
                            ReadMask(*resume_, "last_mask", warm_.rows(), warm_.cols()));
  stats_ = {.iteration = state.iteration,
            .relaxed_loss = state.relaxed_loss,
            .gap = state.gap,
            .step_size = state.step_size,
            .lower_bound = state.lower_bound,
            .toggled = state.toggled,
            .reached_gap = state.reached_gap != 0,
            .drift = state.drift,
            .capture_failures = state.capture_failures,
            .screening = state.screening};
  result_.rounded_loss = state.rounded_loss;
  result_.final_loss = state.final_loss;
  result_.swaps = state.swaps;
  result_.stop_cause = static_cast<StopCause>(state.stop_cause);
  result_.candidate = static_cast<CandidateKind>(state.candidate);
  result_.load_time += absl::Nanoseconds(state.load_ns);
  fixed_kept_ = state.fixed_kept != 0;
  last_report_ = state.last_report;
  threshold_residual_ = state.threshold_residual;
  elapsed_before_ = absl::Nanoseconds(state.elapsed_ns);
  next_ = static_cast<Stage>(state.next_stage);
  if (next_ == Stage::kIterate) return absl::OkStatus();
  SPARSEFW_RETURN_IF_ERROR(CheckAtEnd(*resume_));
  Notify();
  return absl::OkStatus();
}

absl::Status SolveRun::RestoreEngine() {
  SPARSEFW_RETURN_IF_ERROR(engine_->RestoreIteration(*resume_));
  SPARSEFW_RETURN_IF_ERROR(CheckAtEnd(*resume_));
  Notify();
  return absl::OkStatus();
}

absl::Status SolveRun::WriteCheckpoint(CheckpointWriter& writer, Stage next) {
  const SolverState state = {.next_stage = static_cast<int64_t>(next),
                             .iteration = stats_.iteration,
                             .relaxed_loss = stats_.relaxed_loss,
                             .gap = stats_.gap,
                             .step_size = stats_.step_size,
                             .lower_bound = stats_.lower_bound,
                             .toggled = stats_.toggled,
                             .reached_gap = stats_.reached_gap ? 1 : 0,
                             .drift = stats_.drift,
                             .capture_failures = stats_.capture_failures,
                             .full_loss = result_.full_loss,
                             .warm_start_loss = result_.warm_start_loss,
                             .rounded_loss = result_.rounded_loss,
                             .final_loss = result_.final_loss,
                             .swaps = result_.swaps,
                             .stop_cause = static_cast<int64_t>(result_.stop_cause),
                             .candidate = static_cast<int64_t>(result_.candidate),
                             .load_ns = absl::ToInt64Nanoseconds(result_.load_time),
                             .fixed_kept = fixed_kept_ ? 1 : 0,
                             .last_report = last_report_,
                             .threshold_residual = threshold_residual_,
                             .elapsed_ns = absl::ToInt64Nanoseconds(Elapsed()),
                             .screening = stats_.screening};
  SPARSEFW_RETURN_IF_ERROR(writer.Begin({.sweep_point = context_.sweep_point,
                                         .iteration = stats_.iteration,
                                         .stage = static_cast<int64_t>(next)}));
  SPARSEFW_RETURN_IF_ERROR(writer.Field("terms", std::as_bytes(std::span(terms_))));
  SPARSEFW_RETURN_IF_ERROR(writer.Field("solver", BytesOf(state)));
  SPARSEFW_RETURN_IF_ERROR(writer.Field("best_mask", result_.mask.bytes()));
  SPARSEFW_RETURN_IF_ERROR(writer.Field("last_mask", last_tried_.bytes()));
  if (next == Stage::kIterate) SPARSEFW_RETURN_IF_ERROR(engine_->SaveIteration(writer));
  return writer.End();
}

absl::Status SolveRun::OfferCheckpoint(Stage next) {
  CheckpointSink* const sink = context_.checkpoints.sink;
  if (sink == nullptr || terms_.empty() || Stopped()) return absl::OkStatus();
  const absl::Time begin = context_.now();
  if (!sink->Due({.since_last = begin - last_checkpoint_, .last_took = checkpoint_took_})) {
    return absl::OkStatus();
  }
  CheckpointWriter writer(*sink, context_.stop);
  const absl::Status written = WriteCheckpoint(writer, next);
  last_checkpoint_ = context_.now();
  checkpoint_took_ = last_checkpoint_ - begin;
  if (written.ok()) return absl::OkStatus();
  sink->Abandon();
  // A stop is for the next batch or stage to see.
  return writer.sink_failed() || absl::IsCancelled(written) ? absl::OkStatus() : written;
}

}  // namespace sparsefw
