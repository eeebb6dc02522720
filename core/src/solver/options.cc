#include "sparsefw/options.h"

#include <cmath>
#include <string>
#include <type_traits>

#include "core/src/base/number_text.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

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

std::string_view RuleOf(OptionRange range) {
  switch (range) {
    case OptionRange::kAny:
      return "";
    case OptionRange::kAtLeast0:
      return "at least 0";
    case OptionRange::kAtLeast1:
      return "at least 1";
    case OptionRange::kFiniteAtLeast0:
      return "finite and at least 0";
    case OptionRange::kShare:
      return "in [0, 1]";
    case OptionRange::kShareBelowOne:
      return "in [0, 1)";
  }
  return "";
}

bool IsIn(OptionRange range, double value) {
  switch (range) {
    case OptionRange::kAny:
      return true;
    case OptionRange::kAtLeast0:
      return value >= 0;
    case OptionRange::kAtLeast1:
      return value >= 1;
    case OptionRange::kFiniteAtLeast0:
      return value >= 0 && std::isfinite(value);
    case OptionRange::kShare:
      return value >= 0 && value <= 1;
    case OptionRange::kShareBelowOne:
      return value >= 0 && value < 1;
  }
  return false;
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
