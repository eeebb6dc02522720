#include "core/src/solver/checkpoint_terms.h"

#include <type_traits>

#include "absl/strings/str_format.h"
#include "sparsefw/iteration_state.h"
#include "sparsefw/options.h"

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

}  // namespace

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

}  // namespace sparsefw
