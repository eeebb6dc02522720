#include "sparsefw/preset.h"

namespace sparsefw {
namespace {

// The one of a few values with the lowest perplexity of a language model: docs/adr/0035.
constexpr double kShrinkage = 0.1;

}  // namespace

SolveOptions PresetOptions(Preset preset) {
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

}  // namespace sparsefw
