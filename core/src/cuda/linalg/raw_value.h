// Elements of matrices as they are given, on the host and on the device.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_RAW_VALUE_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_RAW_VALUE_H_

#include <cstdint>

#include "core/src/base/host_device.h"
#include "sparsefw/kernel_types.h"

namespace sparsefw::cuda {

// Exact, subnormals included: 2^-24 is the unit of the smallest.
SPARSEFW_HOST_DEVICE inline float FloatOfHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  const uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) return FloatOfBits(sign | 0x7F800000U | (mantissa << 13));
  return FloatOfBits(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

SPARSEFW_HOST_DEVICE inline float FloatOfBFloat16(uint16_t bits) {
  return FloatOfBits(static_cast<uint32_t>(bits) << 16);
}

// Element `index` of contiguous data; dtype is one of F32, F16, BF16, F64.
SPARSEFW_HOST_DEVICE inline double RawValue(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF64:
      return static_cast<const double*>(data)[index];
    case DType::kF16:
      return FloatOfHalf(static_cast<const uint16_t*>(data)[index]);
    case DType::kBF16:
      return FloatOfBFloat16(static_cast<const uint16_t*>(data)[index]);
    default:
      return static_cast<const float*>(data)[index];
  }
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_RAW_VALUE_H_
