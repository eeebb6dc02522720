// Every option of a solve, declared once. Who checks, keeps, sends or lists options visits this
// list: ValidateOptions, the terms of a checkpoint, the wire, the record of a job, the tables of
// the pages.
#ifndef SPARSEFW_OPTIONS_H_
#define SPARSEFW_OPTIONS_H_

#include <string_view>

#include "sparsefw/solver.h"

namespace sparsefw {

// Which numbers an option may be.
enum class OptionRange {
  kAny,
  kAtLeast0,
  kAtLeast1,
  kFiniteAtLeast0,
  kShare,          // [0, 1]
  kShareBelowOne,  // [0, 1)
};

// What follows "must be" in a message: "in [0, 1)". Empty for kAny.
std::string_view RuleOf(OptionRange range);
// False for NaN wherever there is a rule.
bool IsIn(OptionRange range, double value);

struct OptionInfo {
  std::string_view name;  // unique; of the field of the durable record
  // The field of sparsefw.v1.JobSpec. Empty where there is none: such an option does not change
  // mask and weights.
  std::string_view path;
  OptionRange range = OptionRange::kAny;

  // As messages name it: the last part of the path.
  constexpr std::string_view shown() const {
    return path.empty() ? name : path.substr(path.rfind('.') + 1);
  }
};

// Calls visit(info, get) for every option but the deadline; get(options) is a reference to it.
template <typename Visit>
void ForEachOption(Visit&& visit) {
  using Info = OptionInfo;
  using enum OptionRange;
  visit(
      Info{"method", "method"}, [](auto& o) -> auto& { return o.method; });
  visit(
      Info{"warm_start_method", "warm_start.method"},
      [](auto& o) -> auto& { return o.warm_start.method; });
  visit(
      Info{"ria_exponent", "warm_start.ria_exponent", kFiniteAtLeast0},
      [](auto& o) -> auto& { return o.warm_start.ria_exponent; });
  visit(
      Info{"shrinkage", "shrinkage", kShareBelowOne}, [](auto& o) -> auto& { return o.shrinkage; });
  visit(
      Info{"alpha", "sparsefw.alpha", kShare}, [](auto& o) -> auto& { return o.alpha; });
  visit(
      Info{"iterations", "sparsefw.iterations", kAtLeast1},
      [](auto& o) -> auto& { return o.iterations; });
  visit(
      Info{"step_rule", "sparsefw.step_rule"}, [](auto& o) -> auto& { return o.step_rule; });
  visit(
      Info{"rel_gap", "sparsefw.rel_gap", kFiniteAtLeast0},
      [](auto& o) -> auto& { return o.rel_gap; });
  visit(
      Info{"report_every", "sparsefw.report_every", kAtLeast1},
      [](auto& o) -> auto& { return o.report_every; });
  visit(
      Info{"swaps", "refine.swaps"}, [](auto& o) -> auto& { return o.swaps; });
  visit(
      Info{"keep_fixed", "refine.keep_fixed"}, [](auto& o) -> auto& { return o.keep_fixed; });
  visit(
      Info{"reconstruct", "reconstruct"}, [](auto& o) -> auto& { return o.reconstruct; });
  visit(
      Info{"joint", "refine.joint"}, [](auto& o) -> auto& { return o.joint; });
  visit(
      Info{"joint_damping", "refine.joint_damping", kShare},
      [](auto& o) -> auto& { return o.joint_options.damping; });
  visit(
      Info{"joint_excluded", "refine.joint_excluded", kShareBelowOne},
      [](auto& o) -> auto& { return o.joint_options.excluded; });
  visit(
      Info{"sparsegpt_damping", "sparsegpt.damping", kShare},
      [](auto& o) -> auto& { return o.sparsegpt.damping; });
  visit(
      Info{"sparsegpt_block", "sparsegpt.block_size", kAtLeast1},
      [](auto& o) -> auto& { return o.sparsegpt.block; });
  visit(
      Info{"product_precision", "product_precision"},
      [](auto& o) -> auto& { return o.product_precision; });
  visit(
      Info{"measure_new_weights", ""}, [](auto& o) -> auto& { return o.measure_new_weights; });
  visit(
      Info{"threads", "", kAtLeast0}, [](auto& o) -> auto& { return o.threads; });
}

}  // namespace sparsefw

#endif  // SPARSEFW_OPTIONS_H_
