// One solve, with its clock given from outside.
#ifndef SPARSEFW_CORE_SRC_SOLVER_SOLVE_RUN_H_
#define SPARSEFW_CORE_SRC_SOLVER_SOLVE_RUN_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/src/solver/shrunk_gram.h"
#include "sparsefw/solver.h"

namespace sparsefw {

// State that successive solves of one layer reuse. Plain data, valid for one W, one G, one
// shrinkage and one engine. Each part is filled by the first solve that needs it.
struct LayerCache {
  bool reused = false;              // more solves of this layer follow
  ShrunkGram shrunk;                // what the host reads as G, where there is a shrinkage
  std::unique_ptr<Engine> engine;   // may be loaded again, with the same W and G
  std::optional<double> full_loss;  // ||WX||^2
  Mask warm;                        // the latest warm start ...
  double warm_loss = 0;             // ... and its loss
  absl::Duration loss_time;         // of the slowest loss evaluation so far
};

// Inputs of a solve, as in sparsefw/solver.h.
struct SolveContext {
  const Problem& problem;
  const SolveOptions& options;
  const Backend& backend;
  LayerCache& cache;  // of this W and G
  SolveObserver* observer = nullptr;
  const StopSignal* stop = nullptr;
  std::function<absl::Time()> now;
  Checkpoints checkpoints = {};
  int sweep_point = 0;
};

// One solve from end to end; whatever it throws has become a status.
absl::StatusOr<SolveResult> RunSolve(const SolveContext& context);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SOLVER_SOLVE_RUN_H_
