#include "sparsefw/options.h"

#include <array>
#include <limits>
#include <string>
#include <type_traits>

#include "core/src/base/number_text.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();
constexpr double kBelowOne = 1 - std::numeric_limits<double>::epsilon() / 2;

struct Range {
  std::string_view text;
  double least;
  double most;
};
// In the order of the enumerators.
constexpr auto kRanges = std::to_array<Range>({{"", -kInfinity, kInfinity},
                                               {"at least 1", 1, kInfinity},
                                               {"finite and at least 0", 0, kLargest},
                                               {"in [0, 1]", 0, 1},
                                               {"in [0, 1)", 0, kBelowOne},
                                               {"in [0, 1024]", 0, 1024}});
static_assert(kRanges.size() == static_cast<size_t>(OptionRange::kThreads) + 1);

const Range& RangeOf(OptionRange range) { return kRanges[static_cast<size_t>(range)]; }

template <typename Number>
absl::Status CheckRange(const OptionInfo& info, Number value) {
  if (IsIn(info.range, static_cast<double>(value))) return absl::OkStatus();
  std::string text;
  if constexpr (std::is_floating_point_v<Number>) {
    text = NumberText(value);
  } else {
    text = std::to_string(value);
  }
  return Invalid("OPTION_INVALID", "%s must be %s; got %s=%s", info.shown(), RuleOf(info.range),
                 info.shown(), text);
}

// Options that exclude each other.
absl::Status CheckTogether(const SolveOptions& options) {
  // Their new weights belong to their own mask.
  if (HasOwnWeights(options.method) && options.swaps) {
    return Invalid("OPTION_INVALID", "swaps must be off with method %s; got swaps=true",
                   options.method == Method::kAlps ? "ALPS" : "SPARSEGPT");
  }
  if (options.joint && options.reconstruct) {
    return Invalid("OPTION_INVALID",
                   "reconstruct must be off with joint, which solves the weights itself; got "
                   "reconstruct=true");
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view RuleOf(OptionRange range) { return RangeOf(range).text; }

bool IsIn(OptionRange range, double value) {
  if (range == OptionRange::kAny) return true;
  return value >= RangeOf(range).least && value <= RangeOf(range).most;
}

SolveOptions WithStepRule(SolveOptions options) {
  if (options.step_rule != StepRule::kAuto) return options;
  options.step_rule = StepRule::kLineSearch;
  if (options.rel_gap == 0) options.rel_gap = kAutoRelGap;
  return options;
}

absl::Status ValidateOptions(const SolveOptions& options) {
  absl::Status found;
  ForEachOption([&](const OptionInfo& info, auto get) {
    const auto value = get(options);
    if constexpr (std::is_arithmetic_v<std::remove_const_t<decltype(value)>>) {
      if (found.ok()) found = CheckRange(info, value);
    }
  });
  SPARSEFW_RETURN_IF_ERROR(found);
  return CheckTogether(options);
}

}  // namespace sparsefw
