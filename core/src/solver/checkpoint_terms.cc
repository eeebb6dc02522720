#include "core/src/solver/checkpoint_terms.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_format.h"
#include "sparsefw/names.h"
#include "sparsefw/options.h"
#include "sparsefw/status_reason.h"

namespace sparsefw {
namespace {

// The first line of what is left, without its end.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

class Lines {
 public:
  void Add(std::string_view name, std::string_view value) {
    absl::StrAppendFormat(&text_, "%s=%s\n", name, value);
  }
  void Add(std::string_view name, int64_t value) {
    absl::StrAppendFormat(&text_, "%s=%d\n", name, value);
  }
  // Exactly that value, digit by digit.
  void Add(std::string_view name, double value) {
    absl::StrAppendFormat(&text_, "%s=%.17g\n", name, value);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

int64_t NumberOf(auto value) { return static_cast<int64_t>(value); }

}  // namespace

std::string CheckpointTerms(const Problem& problem, const SolveOptions& options,
                            const Backend& backend, int sweep_point) {
  Lines lines;
  lines.Add("program", SPARSEFW_VERSION);
  lines.Add("engine", backend.checkpoint_tag());
  lines.Add("sweep_point", NumberOf(sweep_point));
  lines.Add("rows", problem.weights.rows());
  lines.Add("cols", problem.weights.cols());
  lines.Add("weights", NumberOf(problem.weights.dtype()));
  lines.Add("gram", NumberOf(problem.gram.dtype()));
  lines.Add("own_saliency", NumberOf(problem.saliency.empty()));
  lines.Add("own_warm_mask", NumberOf(problem.warm_mask == nullptr));
  lines.Add("pattern", NameOf(problem.pattern.kind));
  lines.Add("sparsity", problem.pattern.sparsity);
  lines.Add("keep", NumberOf(problem.pattern.keep));
  lines.Add("group", NumberOf(problem.pattern.group));
  ForEachOption([&](const OptionInfo& info, auto get) {
    if (info.path.empty()) return;
    const auto value = get(options);
    using Value = std::remove_const_t<decltype(value)>;
    if constexpr (std::is_enum_v<Value>) {
      lines.Add(info.name, NameOf(value));
    } else if constexpr (std::is_floating_point_v<Value>) {
      lines.Add(info.name, value);
    } else {
      lines.Add(info.name, NumberOf(value));
    }
  });
  return lines.Take();
}

absl::Status CompareTerms(std::string_view written, std::string_view wanted) {
  while (!written.empty() || !wanted.empty()) {
    const std::string_view other = TakeLine(written);
    const std::string_view own = TakeLine(wanted);
    if (other == own) continue;
    return Refuse(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID",
                  "a checkpoint must be of a solve with \"%s\"; got one with \"%s\"", own, other);
  }
  return absl::OkStatus();
}

}  // namespace sparsefw
