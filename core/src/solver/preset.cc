#include "sparsefw/preset.h"

#include "sparsefw/joint.h"
#include "sparsefw/options.h"

namespace sparsefw {
namespace {

// The one of a few values with the lowest perplexity of a language model: docs/adr/0035.
constexpr double kShrinkage = 0.1;

SolveOptions OptionsOf(Preset preset) {
  switch (preset) {
    case Preset::kFast:
      return {.method = Method::kWanda, .alpha = 0.5, .swaps = true};
    case Preset::kBalanced:
      // Line search has settled by then; swaps finish what is left.
      return {.shrinkage = kShrinkage,
              .alpha = 0.5,
              .iterations = 200,
              .step_rule = StepRule::kLineSearch,
              .report_every = 50,
              .swaps = true};
    case Preset::kBest:
      return {.method = Method::kAlps,
              .shrinkage = kShrinkage,
              .alpha = kWideJointAlpha,
              .joint = true,
              .joint_options = {.excluded = kWideJointExcluded}};
    case Preset::kPaper:
      break;
  }
  return {};
}

}  // namespace

SolveOptions ResolveOptions(const OptionRequest& request, const Pattern& pattern) {
  const auto given = [&](std::string_view name) { return request.given.contains(name); };
  SolveOptions options = OptionsOf(request.preset.value_or(Preset::kPaper));
  options.deadline = request.options.deadline;
  ForEachOption([&](const OptionInfo& info, auto get) {
    if (given(info.name)) get(options) = get(request.options);
  });
  if (!given("swaps") && HasOwnWeights(options.method)) options.swaps = false;
  if (!given("joint") && options.reconstruct) options.joint = false;
  if (!options.joint) return options;
  if (!given("alpha") && !request.preset) options.alpha = JointAlpha(pattern);
  if (!given("joint_excluded") && request.preset != Preset::kBest) {
    options.joint_options.excluded = JointExcluded(pattern, options.keep_fixed ? options.alpha : 0);
  }
  return options;
}

}  // namespace sparsefw
