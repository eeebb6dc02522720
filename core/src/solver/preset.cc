#include <algorithm>
#include <array>

#include "sparsefw/joint.h"
#include "sparsefw/options.h"

namespace sparsefw {
namespace {

SolveOptions OptionsOf(Preset preset) {
  switch (preset) {
    case Preset::kFast:
      return {.method = Method::kWanda, .alpha = 0.5, .swaps = true};
    case Preset::kBalanced:
      // Line search has settled by then; swaps finish what is left.
      return {.alpha = 0.5,
              .iterations = 200,
              .step_rule = StepRule::kLineSearch,
              .report_every = 50,
              .swaps = true};
    case Preset::kBest:
      return {.method = Method::kAlps, .joint = true};
    case Preset::kPaper:
      break;
  }
  return {};
}

}  // namespace

double JointAlpha(const Pattern& pattern) {
  return pattern.kind == Pattern::Kind::kKeepOfGroup ? kWideJointAlpha : 0.9;
}

double JointExcluded(const Pattern& pattern, double alpha) {
  if (pattern.kind == Pattern::Kind::kKeepOfGroup) return kWideJointExcluded;
  const double kept = 1 - pattern.sparsity;
  return std::clamp(pattern.sparsity - (1 - alpha) * kept, 0.0, 0.99);
}

bool IsOfMethod(std::string_view name) {
  constexpr std::array<std::string_view, 3> kOfNone = {"product_precision", "threads",
                                                       "measure_new_weights"};
  return std::find(kOfNone.begin(), kOfNone.end(), name) == kOfNone.end();
}

Preset PresetOf(const OptionRequest& request) {
  if (request.preset) return *request.preset;
  bool of_method = false;
  ForEachOption([&](const OptionInfo& info, auto) {
    of_method = of_method || (IsOfMethod(info.name) && request.given.contains(info.name));
  });
  return of_method ? Preset::kPaper : Preset::kBalanced;
}

bool ShrinksByTokens(const OptionRequest& request) {
  const Preset preset = PresetOf(request);
  const bool shrinks = preset == Preset::kBalanced || preset == Preset::kBest;
  return shrinks && !request.given.contains("shrinkage");
}

double ShrinkageFor(int64_t inputs, int64_t tokens) {
  if (tokens < 1) return kUsualShrinkage;
  if (tokens < inputs) return kShrinkageOfSingular;
  const double per_token = static_cast<double>(inputs) / static_cast<double>(tokens);
  return std::min(kUsualShrinkage, kShrinkagePerInput * per_token);
}

SolveOptions ResolveOptions(const OptionRequest& request, const Pattern& pattern) {
  const auto given = [&](std::string_view name) { return request.given.contains(name); };
  SolveOptions options = OptionsOf(PresetOf(request));
  options.deadline = request.options.deadline;
  if (ShrinksByTokens(request)) options.shrinkage = ShrinkageFor(request.inputs, request.tokens);
  ForEachOption([&](const OptionInfo& info, auto get) {
    if (given(info.name)) get(options) = get(request.options);
  });
  if (!given("swaps") && HasOwnWeights(options.method)) options.swaps = false;
  if (!given("joint") && options.reconstruct) options.joint = false;
  if (!options.joint) return options;
  const Preset preset = PresetOf(request);
  const bool own = preset == Preset::kFast || preset == Preset::kBalanced;
  if (!given("alpha") && !own) options.alpha = JointAlpha(pattern);
  if (!given("joint_excluded")) {
    options.joint_options.excluded = JointExcluded(pattern, options.keep_fixed ? options.alpha : 0);
  }
  return options;
}

}  // namespace sparsefw
