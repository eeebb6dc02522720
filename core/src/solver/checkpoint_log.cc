#include "core/src/solver/checkpoint_log.h"

#include <array>
#include <bit>
#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_format.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/iteration_state.h"
#include "sparsefw/options.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

// The first line of what is left, without its end.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

template <typename Value>
std::string TextOf(const Value& value) {
  if constexpr (std::is_convertible_v<Value, std::string_view>) {
    return std::string(value);
  } else if constexpr (requires { NameOf(value); }) {
    return std::string(NameOf(value));
  } else if constexpr (std::is_floating_point_v<Value>) {
    return absl::StrFormat("%.17g", value);  // exactly that value, digit by digit
  } else {
    return absl::StrFormat("%d", static_cast<int64_t>(value));
  }
}

// The solve that a checkpoint is good for: everything but the values of the inputs that the bits of
// a solve depend on, as text. A line "name=value" for each of them. Not the deadline, which only a
// solve that meets it depends on, nor the threads, on which none does.
std::string CheckpointTerms(const Problem& problem, const SolveOptions& options,
                            const Backend& backend, int sweep_point) {
  std::string text;
  const auto add = [&](std::string_view name, const auto& value) {
    absl::StrAppendFormat(&text, "%s=%s\n", name, TextOf(value));
  };
  add("program", SPARSEFW_VERSION);
  add("engine", backend.checkpoint_tag());
  add("sweep_point", sweep_point);
  add("rows", problem.weights.rows());
  add("cols", problem.weights.cols());
  add("weights", problem.weights.dtype());
  add("gram", problem.gram.dtype());
  add("own_saliency", problem.saliency.empty());
  add("own_warm_mask", problem.warm_mask == nullptr);
  add("pattern", NameOf(problem.pattern.kind));
  add("sparsity", problem.pattern.sparsity);
  add("keep", problem.pattern.keep);
  add("group", problem.pattern.group);
  ForEachOption([&](const OptionInfo& info, auto get) {
    if (!info.path.empty()) add(info.name, get(options));
  });
  return text;
}

// What the caller's scores decide: the fixed set, and ties of rounding.
uint32_t SaliencyCrc(const SolveState& state) {
  uint32_t crc = Crc32c(state.fixed.bytes());
  const ConstMatrixView saliency = state.problem.saliency;
  const size_t row_bytes = static_cast<size_t>(saliency.cols()) * SizeOf(saliency.dtype());
  for (int64_t row = 0; row < saliency.rows(); ++row) {
    crc = ExtendCrc32c(crc, {saliency.row_bytes(row), row_bytes});
  }
  return crc;
}

// Errors: FailedPrecondition (CHECKPOINT_INVALID), naming the first that differs
absl::Status CompareTerms(std::string_view written, std::string_view wanted) {
  while (!written.empty() || !wanted.empty()) {
    const std::string_view other = TakeLine(written);
    const std::string_view own = TakeLine(wanted);
    if (other == own) continue;
    return InvalidCheckpoint("a checkpoint must be of a solve with \"%s\"; got one with \"%s\"",
                             own, other);
  }
  return absl::OkStatus();
}

// The solver's own numbers in a checkpoint; of `summary` those that ForEachNumber names.
struct Numbers {
  Stage next = Stage::kIterate;
  StepStats stats;
  SolveSummary summary;
  bool fixed_kept = true;
  int64_t last_report = 0;
  double threshold_residual = 0;
  absl::Duration elapsed;
  int64_t saliency_crc = 0;  // no loss depends on it, the iterations do
};

// Calls visit with them in the order of the bytes. Another order, or number, is another format.
template <typename Visit>
auto VisitNumbers(Numbers& numbers, Visit&& visit) {
  auto& [next, stats, summary, fixed_kept, last_report, threshold_residual, elapsed, saliency_crc] =
      numbers;
  return visit(next, stats.iteration, stats.relaxed_loss, stats.gap, stats.step_size,
               stats.lower_bound, stats.toggled, stats.reached_gap, stats.drift,
               stats.engine.capture_failures, summary.full_loss, summary.warm_start_loss,
               summary.rounded_loss, summary.final_loss, summary.swaps, summary.stop_cause,
               summary.candidate, summary.load_time, fixed_kept, last_report, threshold_residual,
               elapsed, stats.engine.screening.epochs, stats.engine.screening.iterations,
               stats.engine.screening.active_share, saliency_crc);
}

// Each number as 8 bytes.
using Words = std::array<int64_t, 26>;

template <typename T>
int64_t WordOf(const T& value) {
  if constexpr (std::is_same_v<T, absl::Duration>) return absl::ToInt64Nanoseconds(value);
  if constexpr (std::is_floating_point_v<T>) return std::bit_cast<int64_t>(value);
  if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) return static_cast<int64_t>(value);
}

template <typename T>
T ValueOf(int64_t word) {
  if constexpr (std::is_same_v<T, absl::Duration>) return absl::Nanoseconds(word);
  if constexpr (std::is_floating_point_v<T>) return std::bit_cast<T>(word);
  if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) return static_cast<T>(word);
}

Words WordsOf(Numbers numbers) {
  return VisitNumbers(numbers, [](const auto&... each) { return Words{WordOf(each)...}; });
}

absl::Status ReadNumbers(StateReader& reader, Numbers& numbers) {
  Words words;
  SPARSEFW_RETURN_IF_ERROR(reader.Read("solver", WritableBytesOf(words)));
  VisitNumbers(numbers, [word = words.begin()]<typename... T>(T&... each) mutable {
    static_assert(sizeof...(T) == std::tuple_size_v<Words>);
    ((each = ValueOf<T>(*word++)), ...);
  });
  return absl::OkStatus();
}

absl::StatusOr<Mask> ReadMask(StateReader& reader, std::string_view name, const Mask& shape) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::span<const std::byte> mask,
                            reader.Field(name, shape.bytes().size()));
  return Mask::FromBytes(shape.rows(), shape.cols(), mask);
}

absl::Status CheckSameLoss(std::string_view what, double own, double other) {
  if (WordOf(own) == WordOf(other)) return absl::OkStatus();
  return InvalidCheckpoint(
      "a checkpoint must be of the same weights and gram; its %s is %.17g, that of these is %.17g",
      what, other, own);
}

// As CheckpointTerms writes it; 0 where it is not there.
int SweepPointOf(std::span<const std::byte> terms) {
  constexpr std::string_view kName = "sweep_point=";
  std::string_view text(reinterpret_cast<const char*>(terms.data()), terms.size());
  while (!text.empty()) {
    const std::string_view line = TakeLine(text);
    if (!line.starts_with(kName)) continue;
    const std::string_view digits = line.substr(kName.size());
    int point = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), point);
    return point;
  }
  return 0;
}

absl::Status CheckAtEnd(const StateReader& reader) {
  if (reader.at_end()) return absl::OkStatus();
  return InvalidCheckpoint("a checkpoint must end after its last field; more follows");
}

}  // namespace

std::optional<CheckpointInfo> PeekCheckpoint(std::span<const std::byte> bytes) {
  absl::StatusOr<StateReader> fields = OpenUnchecked(bytes);
  if (!fields.ok()) return std::nullopt;
  const absl::StatusOr<std::span<const std::byte>> terms = fields->AnyField("terms");
  Numbers numbers;
  if (!terms.ok() || !ReadNumbers(*fields, numbers).ok()) return std::nullopt;
  return CheckpointInfo{.sweep_point = SweepPointOf(*terms),
                        .iteration = numbers.stats.iteration,
                        .stage = WordOf(numbers.next)};
}

CheckpointLog::CheckpointLog(SolveState& state) : state_(state), last_(state.limits.now()) {}

absl::Status CheckpointLog::Open() {
  const SolveContext& given = state_.given;
  const bool resumes = !given.checkpoints.resume.empty();
  if (!resumes && given.checkpoints.sink == nullptr) return absl::OkStatus();
  if (!given.backend.checkpoint_tag().empty()) {
    terms_ = CheckpointTerms(given.problem, state_.options, given.backend, given.sweep_point);
  }
  if (!resumes) return absl::OkStatus();
  if (terms_.empty()) {
    return InvalidCheckpoint("backend \"%s\" has no checkpoints; got one to resume from",
                             given.backend.name());
  }
  SPARSEFW_ASSIGN_OR_RETURN(resume_, OpenCheckpoint(given.checkpoints.resume, given.stop));
  SPARSEFW_ASSIGN_OR_RETURN(const std::span<const std::byte> terms, resume_->AnyField("terms"));
  return CompareTerms({reinterpret_cast<const char*>(terms.data()), terms.size()}, terms_);
}

absl::Status CheckpointLog::RestoreState() {
  if (!resumes()) return absl::OkStatus();
  SolveResult& result = state_.result;
  Numbers saved;
  saved.summary = result;  // what is not in the checkpoint stays
  SPARSEFW_RETURN_IF_ERROR(ReadNumbers(*resume_, saved));
  const int64_t iteration = saved.stats.iteration;
  if (iteration < 0 || iteration > state_.options.iterations) {
    return InvalidCheckpoint("the iteration of a checkpoint must be in [0, %d]; got %d",
                             state_.options.iterations, iteration);
  }
  SolveSummary& summary = saved.summary;
  SPARSEFW_RETURN_IF_ERROR(
      CheckSameLoss("loss of pruning everything", result.full_loss, summary.full_loss));
  SPARSEFW_RETURN_IF_ERROR(
      CheckSameLoss("warm-start loss", result.warm_start_loss, summary.warm_start_loss));
  if (saved.saliency_crc != SaliencyCrc(state_)) {
    return InvalidCheckpoint(
        "a checkpoint must be of the same saliency; it has other scores or fixed weights");
  }
  SPARSEFW_ASSIGN_OR_RETURN(result.mask, ReadMask(*resume_, "best_mask", state_.warm));
  SPARSEFW_ASSIGN_OR_RETURN(state_.last_tried, ReadMask(*resume_, "last_mask", state_.warm));
  state_.stats = saved.stats;
  summary.load_time += result.load_time;
  static_cast<SolveSummary&>(result) = summary;
  state_.fixed_kept = saved.fixed_kept;
  state_.last_report = saved.last_report;
  state_.threshold_residual = saved.threshold_residual;
  state_.limits.GoOnAfter(saved.elapsed);
  first_ = saved.next;
  if (first_ == Stage::kIterate) return absl::OkStatus();
  SPARSEFW_RETURN_IF_ERROR(CheckAtEnd(*resume_));
  Notify(state_);
  return absl::OkStatus();
}

absl::Status CheckpointLog::RestoreEngine() {
  SPARSEFW_RETURN_IF_ERROR(state_.engine->RestoreIteration(*resume_));
  SPARSEFW_RETURN_IF_ERROR(CheckAtEnd(*resume_));
  Notify(state_);
  return absl::OkStatus();
}

absl::Status CheckpointLog::Write(CheckpointWriter& writer, Stage next) {
  const Words words = WordsOf({.next = next,
                               .stats = state_.stats,
                               .summary = state_.result,
                               .fixed_kept = state_.fixed_kept,
                               .last_report = state_.last_report,
                               .threshold_residual = state_.threshold_residual,
                               .elapsed = state_.limits.Elapsed(),
                               .saliency_crc = SaliencyCrc(state_)});
  SPARSEFW_RETURN_IF_ERROR(writer.Begin({.sweep_point = state_.given.sweep_point,
                                         .iteration = state_.stats.iteration,
                                         .stage = WordOf(next)}));
  SPARSEFW_RETURN_IF_ERROR(writer.Field("terms", std::as_bytes(std::span(terms_))));
  SPARSEFW_RETURN_IF_ERROR(writer.Field("solver", BytesOf(words)));
  SPARSEFW_RETURN_IF_ERROR(writer.Field("best_mask", state_.result.mask.bytes()));
  SPARSEFW_RETURN_IF_ERROR(writer.Field("last_mask", state_.last_tried.bytes()));
  if (next == Stage::kIterate) SPARSEFW_RETURN_IF_ERROR(state_.engine->SaveIteration(writer));
  return writer.End();
}

absl::Status CheckpointLog::Offer(Stage next) {
  CheckpointSink* const sink = state_.given.checkpoints.sink;
  const Limits& limits = state_.limits;
  if (sink == nullptr || terms_.empty() || limits.stopped()) return absl::OkStatus();
  const absl::Time begin = limits.now();
  if (!sink->Due({.since_last = begin - last_, .last_took = last_took_})) return absl::OkStatus();
  CheckpointWriter writer(*sink, state_.given.stop);
  const absl::Status written = Write(writer, next);
  last_ = limits.now();
  last_took_ = last_ - begin;
  if (written.ok()) return absl::OkStatus();
  sink->Abandon();
  // A stop is for the next batch or stage to see.
  return writer.sink_failed() || absl::IsCancelled(written) ? absl::OkStatus() : written;
}

}  // namespace sparsefw
