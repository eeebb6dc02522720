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

bool IsNonFinite(double v) { return (std::bit_cast<uint64_t>(v) & kExponentF64) == kExponentF64; }
bool IsNonFinite(float v) { return (std::bit_cast<uint32_t>(v) & kExponentF32) == kExponentF32; }
bool IsNonFinite(Half v) { return (v.bits & kExponentF16) == kExponentF16; }
bool IsNonFinite(BFloat16 v) { return (v.bits & kExponentBF16) == kExponentBF16; }

template <typename T>
bool RowHasNonFinite(const T* row, int64_t cols) {
  unsigned found = 0;  // no early exit, so that the loop vectorises
  for (int64_t col = 0; col < cols; ++col) found |= IsNonFinite(row[col]) ? 1U : 0U;
  return found != 0;
}

template <typename T>
std::optional<int64_t> LowestNonFinite(ConstMatrixView matrix) {
  LowestIndex lowest;
  const int64_t cols = matrix.cols();
  ParallelFor(matrix.rows(), RowGrain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end && !lowest.IsBelow(row * cols); ++row) {
      const T* values = matrix.row<T>(row);
      if (!RowHasNonFinite(values, cols)) continue;
      int64_t col = 0;
      while (!IsNonFinite(values[col])) ++col;
      lowest.Offer(row * cols + col);
    }
  });
  return lowest.Get();
}

std::optional<int64_t> LowestNonFiniteOf(ConstMatrixView matrix) {
  switch (matrix.dtype()) {
    case DType::kF64:
      return LowestNonFinite<double>(matrix);
    case DType::kF32:
      return LowestNonFinite<float>(matrix);
    case DType::kF16:
      return LowestNonFinite<Half>(matrix);
    case DType::kBF16:
      return LowestNonFinite<BFloat16>(matrix);
    case DType::kBool:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<NonFinite> FindNonFinite(ConstMatrixView matrix) {
  const std::optional<int64_t> index = LowestNonFiniteOf(matrix);
  if (!index) return std::nullopt;
  const int64_t row = *index / matrix.cols();
  const int64_t col = *index % matrix.cols();
  return NonFinite{row, col, ValueAt(matrix, row, col)};
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
