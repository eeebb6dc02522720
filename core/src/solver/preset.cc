#include "sparsefw/preset.h"

namespace sparsefw {
namespace {

// Of some dampings the one that lost less than ALPS on the calibration inputs and on others:
// docs/adr/0034.
constexpr double kBestJointDamping = 0.03;

}  // namespace

SolveOptions PresetOptions(Preset preset) {
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
      return {.method = Method::kAlps,
              .alpha = kJointAlpha,
              .joint = true,
              .joint_options = {.damping = kBestJointDamping}};
    case Preset::kPaper:
      break;
  }
  return {};
}

}  // namespace sparsefw
