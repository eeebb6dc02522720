// Named settings, chosen from measurements: docs/cli.md has their losses and seconds.
#ifndef SPARSEFW_PRESET_H_
#define SPARSEFW_PRESET_H_

#include "sparsefw/solver.h"

namespace sparsefw {

enum class Preset {
  kPaper,     // SparseFW, Algorithm 2 as printed: the defaults of SolveOptions
  kFast,      // Wanda, then swaps; half of the kept weights stay
  kBalanced,  // SparseFW with alpha = 0.5 and line search on a shrunk G, then swaps
  kBest,      // mask and weights together, from those of ALPS, of a shrunk G
};

SolveOptions PresetOptions(Preset preset);

}  // namespace sparsefw

#endif  // SPARSEFW_PRESET_H_
