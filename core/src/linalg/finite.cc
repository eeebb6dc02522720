#include "core/src/linalg/finite.h"

#include <bit>

#include "core/src/parallel/parallel_context.h"

namespace sparsefw {
namespace {

// The bits of the exponent: all set in infinities and NaN only.
constexpr uint64_t kExponentF64 = 0x7FF0000000000000U;
constexpr uint32_t kExponentF32 = 0x7F800000U;
constexpr uint16_t kExponentF16 = 0x7C00U;
constexpr uint16_t kExponentBF16 = 0x7F80U;

// Its bits without sign and mantissa.
uint64_t ExponentOf(double v) { return std::bit_cast<uint64_t>(v) & kExponentF64; }
uint32_t ExponentOf(float v) { return std::bit_cast<uint32_t>(v) & kExponentF32; }
uint16_t ExponentOf(Half v) { return v.bits & kExponentF16; }
uint16_t ExponentOf(BFloat16 v) { return v.bits & kExponentBF16; }

// `least`: of the exponents that are looked for.
template <typename T, typename Bits>
bool RowHas(const T* row, int64_t cols, Bits least) {
  unsigned found = 0;  // no early exit, so that the loop vectorises
  for (int64_t col = 0; col < cols; ++col) found |= ExponentOf(row[col]) >= least ? 1U : 0U;
  return found != 0;
}

// The first value with such an exponent.
template <typename T, typename Bits>
std::optional<NonFinite> Lowest(ConstMatrixView matrix, Bits least) {
  LowestIndex lowest;
  const int64_t cols = matrix.cols();
  ParallelFor(matrix.rows(), RowGrain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end && !lowest.IsBelow(row * cols); ++row) {
      const T* values = matrix.row<T>(row);
      if (!RowHas(values, cols, least)) continue;
      int64_t col = 0;
      while (ExponentOf(values[col]) < least) ++col;
      lowest.Offer(row * cols + col);
    }
  });
  const std::optional<int64_t> index = lowest.Get();
  if (!index) return std::nullopt;
  return NonFinite{*index / cols, *index % cols, ValueAt(matrix, *index / cols, *index % cols)};
}

}  // namespace

std::optional<NonFinite> FindNonFinite(ConstMatrixView matrix) {
  switch (matrix.dtype()) {
    case DType::kF64:
      return Lowest<double>(matrix, kExponentF64);
    case DType::kF32:
      return Lowest<float>(matrix, kExponentF32);
    case DType::kF16:
      return Lowest<Half>(matrix, kExponentF16);
    case DType::kBF16:
      return Lowest<BFloat16>(matrix, kExponentBF16);
    case DType::kBool:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<NonFinite> FindTooLarge(ConstMatrixView activations) {
  const uint32_t least = ExponentOf(static_cast<float>(kTooLargeActivation));
  switch (activations.dtype()) {
    case DType::kF32:
      return Lowest<float>(activations, least);
    case DType::kBF16:  // the upper half of a float32
      return Lowest<BFloat16>(activations, static_cast<uint16_t>(least >> 16));
    default:
      return FindNonFinite(activations);
  }
}

double ValueAt(ConstMatrixView matrix, int64_t row, int64_t col) {
  double value = 0;
  ConvertToDouble(matrix.row_bytes(row) + static_cast<size_t>(col) * SizeOf(matrix.dtype()),
                  matrix.dtype(), 1, &value);
  return value;
}

std::vector<double> DiagonalOf(ConstMatrixView gram) {
  std::vector<double> diagonal;
  for (int64_t i = 0; i < gram.rows(); ++i) diagonal.push_back(ValueAt(gram, i, i));
  return diagonal;
}

}  // namespace sparsefw
