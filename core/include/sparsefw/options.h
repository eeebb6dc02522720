// Every option of a solve, declared once; presets; and what a request that leaves options open
// means.
#ifndef SPARSEFW_OPTIONS_H_
#define SPARSEFW_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>

#include "sparsefw/pattern.h"
#include "sparsefw/solver.h"

namespace sparsefw {

// Which numbers an option may be.
enum class OptionRange {
  kAny,
  kAtLeast1,
  kFiniteAtLeast0,
  kShare,          // [0, 1]
  kShareBelowOne,  // [0, 1)
  kThreads,        // [0, 1024]
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

  // The name in messages: the last part of the path.
  constexpr std::string_view shown() const {
    return path.empty() ? name : path.substr(path.rfind('.') + 1);
  }
};

// Calls visit(info, get) for every option but the deadline; get(options) is a reference to it. Who
// checks, keeps, sends or lists options visits this list: ValidateOptions, the terms of a
// checkpoint, the wire, the record of a job, the tables of the pages.
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
      Info{"threads", "", kThreads}, [](auto& o) -> auto& { return o.threads; });
}

// Named settings, chosen from measurements: docs/cli.md has their losses and seconds.
enum class Preset {
  kPaper,     // SparseFW, Algorithm 2 as printed: the defaults of SolveOptions
  kFast,      // Wanda, then swaps; half of the kept weights stay
  kBalanced,  // SparseFW with alpha = 0.5 and line search on a shrunk G, then swaps
  kBest,      // mask and weights together, from those of ALPS, of a shrunk G
};
std::string_view NameOf(Preset preset);  // "balanced"

// The shrinkage of the presets `balanced` and `best` for a Gram matrix of so many tokens; 0: not
// known. docs/adr/0053 has what it was chosen by:
//
//   kShrinkageOfSingular               tokens < inputs: G is singular
//   kUsualShrinkage                    tokens not known, or below 13 for every input
//   kShrinkagePerInput inputs / tokens with more: what G gets wrong shrinks likewise
inline constexpr double kShrinkageOfSingular = 0.1;
inline constexpr double kUsualShrinkage = 0.03;
inline constexpr double kShrinkagePerInput = 0.4;
double ShrinkageFor(int64_t inputs, int64_t tokens);

// Options that somebody asks for.
struct OptionRequest {
  std::optional<Preset> preset = {};  // none: PresetOf
  SolveOptions options = {};          // of these the ones in `given` count
  // OptionInfo::name of each; other texts are ignored. The other options are as the preset has
  // them.
  std::set<std::string_view> given = {};
  // The Gram matrix has so many; 0: not known. Only the shrinkage of presets depends on them.
  int64_t inputs = 0;
  int64_t tokens = 0;
};

// False for options that say nothing about how a matrix is pruned: the precision of products, the
// threads, and what is measured besides. `name`: an OptionInfo::name.
bool IsOfMethod(std::string_view name);

// What a request without a preset gets: `balanced`, which the measurements recommend, where it
// names neither a method nor an option of one (IsOfMethod); else `paper`, the defaults of
// SolveOptions.
Preset PresetOf(const OptionRequest& request);

// The options of a solve with this pattern: what is given, and the preset's values for the rest.
// Jobs and callers of core get the same numbers for the same request. An option of the preset gives
// way to a given one that excludes it:
//   swaps  off with a method that has weights of its own
//   joint  off with reconstruct
// With the joint search the defaults depend on the pattern:
//   alpha           JointAlpha(pattern), but for the presets `fast` and `balanced`
//   joint_excluded  JointExcluded(pattern, alpha)
// The deadline is the request's; `threads` counts where it is given. Nothing is validated.
SolveOptions ResolveOptions(const OptionRequest& request, const Pattern& pattern);

// Whether the shrinkage that it returns is ShrinkageFor: for who learns of the tokens later.
bool ShrinksByTokens(const OptionRequest& request);

}  // namespace sparsefw

#endif  // SPARSEFW_OPTIONS_H_
