// Constants of weight reconstruction, shared by the engines.
#ifndef SPARSEFW_CORE_SRC_RECONSTRUCT_RECONSTRUCTION_RULES_H_
#define SPARSEFW_CORE_SRC_RECONSTRUCT_RECONSTRUCTION_RULES_H_

#include <cstdint>

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

// A reconstructed row replaces the masked one only if it lowers the row's loss by
// more than this part of it: less is within the rounding of the products.
inline constexpr double kRowGuard = 1e-6;

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_RECONSTRUCT_RECONSTRUCTION_RULES_H_
