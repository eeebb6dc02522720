// Constants of weight reconstruction, shared by the engines.
#ifndef SPARSEFW_CORE_SRC_RECONSTRUCT_RECONSTRUCTION_RULES_H_
#define SPARSEFW_CORE_SRC_RECONSTRUCT_RECONSTRUCTION_RULES_H_

#include <cstdint>

#include "core/src/base/host_device.h"
#include "core/src/reconstruct/rounded_value.h"

namespace sparsefw {

// Conjugate gradients: a row is done when the steps of the window lowered its loss
// by less than this part of it, and after so many steps at the latest.
inline constexpr double kReconstructTolerance = 1e-5;
inline constexpr int64_t kReconstructWindow = 4;
inline constexpr int64_t kReconstructIterations = 500;

// So is one that loses less than this part of what it began with. Where G is singular (fewer
// tokens than inputs, or few distinct ones) the rest could be won only along eigenvalues that are
// rounding of G: with weights hundreds of times as large, and to no purpose on other inputs.
inline constexpr double kReconstructFloor = 1e-4;

// A row that was solved before is done where r z is no more than this part of its loss: rounding.
inline constexpr double kReconstructSolved = 1e-7;

// New weights of a row replace those before only if they lower the row's loss by more than this
// part of it: less is within the rounding of the products.
inline constexpr double kRowGuard = 1e-6;

// The rounding of G_ij, as a part of sqrt(G_ii G_jj), in the coarser of the dtype that G has come
// in and the one that it is computed in.
constexpr double GramRounding(DType gram, DType computed) {
  return gram == DType::kF32 || computed == DType::kF32 ? 0x1p-24 : 0x1p-53;
}

// Whether new weights of a row surely lose less than those before, which lose `start`. rounding:
// GramRounding times the sum over j of (w_j - new_j)^2 G_jj, which is what rounding of G may change
// the loss by, but for the few directions that it changes most. Where G is singular, weights far
// from w have any loss within that, also one below 0. A loss below -start is that of a G which is
// not positive semi-definite. NaN, where a weight left the range of its dtype, is not less.
SPARSEFW_HOST_DEVICE inline bool LosesLess(double loss, double rounding, double start) {
  const double least = loss < 0 ? 0 : loss;
  return !(loss < -start) && least + rounding < (1 - kRowGuard) * start;
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_RECONSTRUCT_RECONSTRUCTION_RULES_H_
