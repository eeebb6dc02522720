// Element types of matrices, as they are stored in files and sent on the wire.
#ifndef SPARSEFW_DTYPE_H_
#define SPARSEFW_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sparsefw/kernel_types.h"

namespace sparsefw {

// "F32", "F16", "BF16", "F64", "BOOL": the names that safetensors uses.
std::string_view DTypeName(DType dtype);
std::optional<DType> ParseDType(std::string_view name);

// IEEE binary16 and bfloat16 as bit patterns. Conversions to float are exact
// (subnormals, infinities and NaN included); from float they round to nearest,
// ties to even.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
float ToFloat(Half value);
float ToFloat(BFloat16 value);
Half ToHalf(float value);
BFloat16 ToBFloat16(float value);

// Converts `count` elements; dtype is one of F32, F16, BF16, F64.
void ConvertToFloat(const void* source, DType dtype, size_t count, float* out);
void ConvertToDouble(const void* source, DType dtype, size_t count, double* out);

}  // namespace sparsefw

#endif  // SPARSEFW_DTYPE_H_
