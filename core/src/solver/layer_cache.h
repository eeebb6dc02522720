// State that successive solves of one layer reuse.
#ifndef SPARSEFW_CORE_SRC_SOLVER_LAYER_CACHE_H_
#define SPARSEFW_CORE_SRC_SOLVER_LAYER_CACHE_H_

#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "core/src/solver/shrunk_gram.h"
#include "sparsefw/backend.h"
#include "sparsefw/mask.h"

namespace sparsefw {

// Plain data, valid for one W, one G, one shrinkage and one engine. Each part is filled by the
// first solve that needs it.
struct LayerCache {
  bool reused = false;              // more solves of this layer follow
  ShrunkGram shrunk;                // what the engine reads as G, where there is a shrinkage
  std::unique_ptr<Engine> engine;   // may be loaded again, with the same W and G
  std::optional<double> full_loss;  // ||WX||^2
  Mask warm;                        // the latest warm start ...
  double warm_loss = 0;             // ... and its loss
  absl::Duration loss_time;         // of the slowest loss evaluation so far
};

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SOLVER_LAYER_CACHE_H_
