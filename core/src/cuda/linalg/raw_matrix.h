// A matrix as it was given, on the device or on the host, and its elements in both places.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_RAW_MATRIX_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_RAW_MATRIX_H_

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

// Dense, its rows one after the other, without padding but in RawRows. A view; no ownership.
struct RawMatrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;  // F32, F16, BF16, F64
  int64_t rows = 0;
  int64_t cols = 0;

  // Element `index` of contiguous data.
  SPARSEFW_HOST_DEVICE double At(int64_t index) const {
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
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_RAW_MATRIX_H_
