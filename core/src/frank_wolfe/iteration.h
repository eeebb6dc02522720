// The Frank-Wolfe iteration of one layer as the incremental engines have it.
#ifndef SPARSEFW_CORE_SRC_FRANK_WOLFE_ITERATION_H_
#define SPARSEFW_CORE_SRC_FRANK_WOLFE_ITERATION_H_

#include "absl/status/statusor.h"
#include "sparsefw/backend.h"

namespace sparsefw {

// Whatever it is computed in. Losses are those of the scaled layer (scale.h).
class Iteration {
 public:
  virtual ~Iteration() = default;

  // After an error (Cancelled) the iterate is unfinished and takes no further
  // step.
  virtual absl::StatusOr<StepStats> Step(const StepRequest& request) = 0;
  virtual absl::StatusOr<RoundedMask> Round(ConstMatrixView saliency) = 0;
};

// M_0 = warm without fixed. Used during Start only.
struct StartPoint {
  Pattern pattern;
  const Mask& warm;
  const Mask& fixed;
};

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_FRANK_WOLFE_ITERATION_H_
