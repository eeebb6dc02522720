// What solves of one layer share.
#ifndef SPARSEFW_CORE_SRC_SOLVER_LAYER_WORK_H_
#define SPARSEFW_CORE_SRC_SOLVER_LAYER_WORK_H_

#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "sparsefw/backend.h"
#include "sparsefw/mask.h"

namespace sparsefw {

// Filled by the first solve that needs a part; plain data. All of it belongs to
// one W, one G and one engine.
struct LayerWork {
  bool shared = false;              // there will be more solves of this layer
  std::unique_ptr<Engine> engine;   // may be loaded again, with the same W and G
  std::optional<double> full_loss;  // ||WX||^2
  Mask warm;                        // the latest warm start ...
  double warm_loss = 0;             // ... and its loss
  absl::Duration loss_time;         // of the slowest loss so far
};

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SOLVER_LAYER_WORK_H_
