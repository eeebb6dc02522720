// When the engines that reconstruct weights by conjugate gradients end.
#ifndef SPARSEFW_CORE_SRC_RECONSTRUCT_RECONSTRUCT_LIMITS_H_
#define SPARSEFW_CORE_SRC_RECONSTRUCT_RECONSTRUCT_LIMITS_H_

#include <cstdint>

namespace sparsefw {

// A row is done when the steps of the window lowered its loss by less than this
// part of it, and after so many steps at the latest.
inline constexpr double kReconstructTolerance = 1e-5;
inline constexpr int64_t kReconstructWindow = 4;
inline constexpr int64_t kReconstructIterations = 500;

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_RECONSTRUCT_RECONSTRUCT_LIMITS_H_
