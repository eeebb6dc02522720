// Named settings, chosen from measurements (docs/cli.md has their losses and seconds), and what a
// request that leaves options open means.
#ifndef SPARSEFW_PRESET_H_
#define SPARSEFW_PRESET_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>

#include "sparsefw/pattern.h"
#include "sparsefw/solver.h"

namespace sparsefw {

enum class Preset {
  kPaper,     // SparseFW, Algorithm 2 as printed: the defaults of SolveOptions
  kFast,      // Wanda, then swaps; half of the kept weights stay
  kBalanced,  // SparseFW with alpha = 0.5 and line search on a shrunk G, then swaps
  kBest,      // mask and weights together, from those of ALPS, of a shrunk G
};

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
  std::optional<Preset> preset = {};  // none: the defaults of SolveOptions
  SolveOptions options = {};          // of these the ones in `given` count
  // OptionInfo::name of each; other texts are ignored. The other options are as the preset has
  // them.
  std::set<std::string_view> given = {};
  // The Gram matrix has so many; 0: not known. Only the shrinkage of presets depends on them.
  int64_t inputs = 0;
  int64_t tokens = 0;
};

// The options of a solve with this pattern: what is given, and the preset's values for the rest.
// Jobs and callers of core get the same numbers for the same request.
// What a preset has gives way to what is given and does not go with it:
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

#endif  // SPARSEFW_PRESET_H_
