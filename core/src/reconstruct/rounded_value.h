// Weights rounded to the dtype they will be stored in, on the host and in kernels.
#ifndef SPARSEFW_CORE_SRC_RECONSTRUCT_ROUNDED_VALUE_H_
#define SPARSEFW_CORE_SRC_RECONSTRUCT_ROUNDED_VALUE_H_

#include <cstdint>
#include <cstring>
#include <limits>

#include "core/src/base/host_device.h"
#include "sparsefw/kernel_types.h"

namespace sparsefw {

// The nearest value, ties to even; infinite from half a unit above 65504 on.
SPARSEFW_HOST_DEVICE inline float NearestHalf(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = bits & 0x80000000U;
  uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return value;  // NaN
  const float size = FloatOfBits(magnitude);
  if (size >= 65520.0F) return FloatOfBits(sign | 0x7F800000U);
  if (size < 0x1.0p-14F) {
    // A whole number of 2^-24, the unit of floats from .5 on.
    const float units = (size + 0.5F) - 0.5F;
    return sign != 0 ? -units : units;
  }
  magnitude += 0xFFFU + ((magnitude >> 13) & 1U);
  return FloatOfBits(sign | (magnitude & ~0x1FFFU));
}

SPARSEFW_HOST_DEVICE inline float NearestBFloat16(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return value;  // NaN
  bits += 0x7FFFU + ((bits >> 16) & 1U);
  return FloatOfBits(bits & 0xFFFF0000U);
}

// Kernels can use constants, not the functions of numeric_limits.
inline constexpr double kMostFloat = std::numeric_limits<float>::max();
inline constexpr float kInfiniteFloat = std::numeric_limits<float>::infinity();

// The nearest value of `dtype` (F32, F16 or BF16), ties to even; infinite
// where it is out of range.
SPARSEFW_HOST_DEVICE inline float RoundedTo(DType dtype, double value) {
  if (value > kMostFloat) return kInfiniteFloat;
  if (value < -kMostFloat) return -kInfiniteFloat;
  const auto single = static_cast<float>(value);
  if (dtype == DType::kF16) return NearestHalf(single);
  if (dtype == DType::kBF16) return NearestBFloat16(single);
  return single;
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_RECONSTRUCT_ROUNDED_VALUE_H_
