// float32 values as sums of two float16 ones, for products on tensor cores.
//
//   x f = high + low + error,   high = half(x f),  low = half(x f - high)
//
// f is a power of two that brings the largest |x| below 2^16. float16 has 11 bits, so
// |error| <= 2^-22 |x f|, but at least 2^-25: that is 2^-39 of the largest value. Values below
// 2^-17 of it lose bits, and G spans more where inputs differ much in size. So it is split as
//
//   A G = (A S)(S^-1 G),   S diagonal, s_j a power of two near sqrt(G_jj / max|G|), at most 1
//
// |G_jk| <= sqrt(G_jj G_kk), so column k of S^-1 G is below 2 sqrt(G_kk max|G|): both factors span
// the square root of what G does.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_HALF_SPLIT_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_HALF_SPLIT_H_

#include <cstdint>

#include "core/src/base/host_device.h"
#include "core/src/cuda/linalg/raw_matrix.h"

namespace sparsefw::cuda {

// The exponent of the largest values, once they are multiplied by f.
inline constexpr int kHalfExponent = 14;
// Half the smallest float16: rounding of the smallest values is at most that far off.
inline constexpr float kHalfRounding = 0x1.0p-25F;

// The nearest float16, ties to even; |value| < 65520.
SPARSEFW_HOST_DEVICE inline uint16_t HalfOfFloat(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude < 0x38800000U) {  // below 2^-14: a multiple of 2^-24
    // Adding 2^-1 rounds to multiples of 2^-24, which are then its lowest bits.
    const float shifted = FloatOfBits(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (BitsOfFloat(shifted) - 0x3F000000U));
  }
  const uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

// Entries of a row of the left operand that a thread writes.
inline constexpr int kOperandEntries = 8;

// The left operand of a dense product, as kernels write it: entries i to i + 7, i a multiple of 8,
// which begin in column `col`.
template <typename Real>
struct LeftOperand;

template <>
struct LeftOperand<float> {
  uint16_t* high = nullptr;
  uint16_t* low = nullptr;  // null: the product does without
  float factor = 1;
  const float* columns = nullptr;  // [stride]: another factor of each column

  SPARSEFW_HOST_DEVICE void Put(int64_t i, int64_t col,
                                const float (&values)[kOperandEntries]) const {
    const EightFloats scales = *reinterpret_cast<const EightFloats*>(columns + col);
    EightHalves highs = {};
    EightHalves lows = {};
    for (int pair = 0; pair < kOperandEntries / 2; ++pair) {
      uint32_t high_bits = 0;
      uint32_t low_bits = 0;
      for (int k = 0; k < 2; ++k) {
        const float scaled = values[2 * pair + k] * factor * scales.v[2 * pair + k];
        const uint16_t half = HalfOfFloat(scaled);
        high_bits |= static_cast<uint32_t>(half) << (16 * k);
        low_bits |= static_cast<uint32_t>(HalfOfFloat(scaled - FloatOfHalf(half))) << (16 * k);
      }
      highs.pairs[pair] = high_bits;
      lows.pairs[pair] = low_bits;
    }
    Store(highs, high + i);
    if (low != nullptr) Store(lows, low + i);
  }

 private:
  struct alignas(16) EightFloats {
    float v[kOperandEntries];
  };
  struct alignas(16) EightHalves {
    uint32_t pairs[kOperandEntries / 2];
  };
  SPARSEFW_HOST_DEVICE static void Store(const EightHalves& halves, uint16_t* to) {
#if defined(__CUDA_ARCH__)
    // nvcc takes an assignment apart into four stores.
    const uint32_t(&p)[kOperandEntries / 2] = halves.pairs;
    __stwb(reinterpret_cast<uint4*>(to), make_uint4(p[0], p[1], p[2], p[3]));
#else
    *reinterpret_cast<EightHalves*>(to) = halves;
#endif
  }
};

template <>
struct LeftOperand<double> {
  double* values = nullptr;

  SPARSEFW_HOST_DEVICE void Put(int64_t i, int64_t, const double (&from)[kOperandEntries]) const {
    for (int k = 0; k < kOperandEntries; ++k) values[i + k] = from[k];
  }
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_HALF_SPLIT_H_
