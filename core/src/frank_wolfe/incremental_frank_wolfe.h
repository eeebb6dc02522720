// The Frank-Wolfe iteration of one layer as the incremental engines, CPU and
// CUDA, offer it: E and U are updated from step to step, not formed anew.
#ifndef SPARSEFW_CORE_SRC_FRANK_WOLFE_INCREMENTAL_FRANK_WOLFE_H_
#define SPARSEFW_CORE_SRC_FRANK_WOLFE_INCREMENTAL_FRANK_WOLFE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "sparsefw/backend.h"

namespace sparsefw {

// Losses are those of the scaled layer (scale.h), in any precision. `Saliency` is what an engine
// breaks ties by.
template <typename Saliency>
class IncrementalFrankWolfe {
 public:
  virtual ~IncrementalFrankWolfe() = default;

  // After an error (Cancelled) the iterate is unfinished and takes no further
  // step.
  virtual absl::StatusOr<StepStats> Step(const StepRequest& request) = 0;
  virtual absl::StatusOr<RoundedMask> Round(const Saliency& saliency) = 0;

  // All that the coming Steps and Rounds depend on; as Engine::SaveIteration. Each
  // implementation has its Restore in place of its Start.
  virtual absl::Status Save(StateWriter& writer) = 0;
};

// M_0 = warm without fixed. Used during Start only.
struct StartPoint {
  Pattern pattern;
  const Mask& warm;
  const Mask& fixed;
  Screening screening = Screening::kWhereItPays;
};

// The precision of kAuto: float64 for small layers, where float32 saves no time
// worth having (backend.h), unless a precision below float32 was asked for.
inline Precision PrecisionFor(int64_t rows, int64_t cols,
                              ProductPrecision product = ProductPrecision::kFloat32) {
  const bool small = rows * cols < (int64_t{1} << 20) && cols <= 2048;
  return small && product == ProductPrecision::kFloat32 ? Precision::kFloat64 : Precision::kFloat32;
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_FRANK_WOLFE_INCREMENTAL_FRANK_WOLFE_H_
