// Weights rounded to the dtype they will be stored in.
#ifndef SPARSEFW_CORE_SRC_RECONSTRUCT_ROUNDED_WEIGHTS_H_
#define SPARSEFW_CORE_SRC_RECONSTRUCT_ROUNDED_WEIGHTS_H_

#include "sparsefw/dtype.h"

namespace sparsefw {

// The nearest value of `dtype` (F32, F16 or BF16), ties to even; infinite
// where it is out of range.
inline float RoundedTo(DType dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::kF16) return ToFloat(ToHalf(single));
  if (dtype == DType::kBF16) return ToFloat(ToBFloat16(single));
  return single;
}

// By how much a reconstructed row must lower the row's loss to be taken: less
// than this is what the rounding of the products may be off.
inline constexpr double kRowGuard = 1e-6;

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_RECONSTRUCT_ROUNDED_WEIGHTS_H_
