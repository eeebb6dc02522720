#include "sparsefw/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace sparsefw {
namespace {

struct DTypeInfo {
  size_t size;
  std::string_view name;
};
// In the order of the enumerators.
constexpr auto kDTypes =
    std::to_array<DTypeInfo>({{4, "F32"}, {2, "F16"}, {2, "BF16"}, {8, "F64"}, {1, "BOOL"}});
static_assert(kDTypes.size() == static_cast<size_t>(DType::kBool) + 1);

DTypeInfo InfoOf(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return index < kDTypes.size() ? kDTypes[index] : DTypeInfo{0, "?"};
}

template <typename T, typename Out>
void ConvertAll(const void* source, size_t count, Out* out) {
  const T* in = static_cast<const T*>(source);
  for (size_t i = 0; i < count; ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      out[i] = static_cast<Out>(in[i]);
    } else if constexpr (std::is_integral_v<T>) {
      out[i] = static_cast<Out>(in[i] != 0);
    } else {
      out[i] = static_cast<Out>(ToFloat(in[i]));
    }
  }
}

template <typename Out>
void ConvertTo(const void* source, DType dtype, size_t count, Out* out) {
  switch (dtype) {
    case DType::kF32:
      return ConvertAll<float>(source, count, out);
    case DType::kF64:
      return ConvertAll<double>(source, count, out);
    case DType::kF16:
      return ConvertAll<Half>(source, count, out);
    case DType::kBF16:
      return ConvertAll<BFloat16>(source, count, out);
    case DType::kBool:
      return ConvertAll<uint8_t>(source, count, out);
  }
}

}  // namespace

size_t SizeOf(DType dtype) { return InfoOf(dtype).size; }

std::string_view DTypeName(DType dtype) { return InfoOf(dtype).name; }

std::optional<DType> ParseDType(std::string_view name) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kBool}) {
    if (DTypeName(dtype) == name) return dtype;
  }
  return std::nullopt;
}

float ToFloat(Half value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000U) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1FU;
  const uint32_t fraction = value.bits & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255U : exponent + 112U;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

float ToFloat(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

Half ToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return Half{static_cast<uint16_t>(sign | 0x7E00U)};
  if (magnitude >= 65520.0F) return Half{static_cast<uint16_t>(sign | 0x7C00U)};
  if (magnitude < std::ldexp(1.0F, -14)) {
    // Subnormal: a whole number of 2^-24; nearbyint rounds ties to even.
    const float units = std::nearbyint(std::ldexp(magnitude, 24));
    return Half{static_cast<uint16_t>(sign | static_cast<uint16_t>(units))};
  }
  uint32_t wide = std::bit_cast<uint32_t>(magnitude);
  wide += 0xFFFU + ((wide >> 13) & 1U);
  return Half{static_cast<uint16_t>(sign | ((wide - (112U << 23)) >> 13))};
}

BFloat16 ToBFloat16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return BFloat16{static_cast<uint16_t>((bits >> 16) | 0x40U)};
  bits += 0x7FFFU + ((bits >> 16) & 1U);
  return BFloat16{static_cast<uint16_t>(bits >> 16)};
}

void ConvertToFloat(const void* source, DType dtype, size_t count, float* out) {
  if (dtype == DType::kF32) {
    if (count != 0) std::memcpy(out, source, count * sizeof(float));
    return;
  }
  ConvertTo(source, dtype, count, out);
}

void ConvertToDouble(const void* source, DType dtype, size_t count, double* out) {
  ConvertTo(source, dtype, count, out);
}

}  // namespace sparsefw
