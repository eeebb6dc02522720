#include "server/runner/pruned_weight.h"

#include <cstring>
#include <new>

#include "absl/strings/str_format.h"
#include "sparsefw/dtype.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {

namespace {

absl::StatusOr<std::vector<std::byte>> Zeros(int64_t rows, int64_t cols, size_t element) {
  try {
    return std::vector<std::byte>(static_cast<size_t>(rows) * static_cast<size_t>(cols) * element);
  } catch (const std::bad_alloc&) {
    return Refuse(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
                  "no memory for a pruned weight of [%d, %d]", rows, cols);
  }
}

}  // namespace

absl::StatusOr<std::vector<std::byte>> PrunedWeight(ConstMatrixView weights, const Mask& mask) {
  const size_t element = SizeOf(weights.dtype());
  const size_t row_bytes = static_cast<size_t>(weights.cols()) * element;
  SPARSEFW_ASSIGN_OR_RETURN(std::vector<std::byte> bytes,
                            Zeros(weights.rows(), weights.cols(), element));
  for (int64_t row = 0; row < weights.rows(); ++row) {
    const std::byte* from = weights.row_bytes(row);
    std::byte* to = bytes.data() + static_cast<size_t>(row) * row_bytes;
    for (int64_t col = 0; col < weights.cols(); ++col) {
      if (!mask.Get(row, col)) continue;
      const size_t at = static_cast<size_t>(col) * element;
      std::memcpy(to + at, from + at, element);
    }
  }
  return bytes;
}

absl::StatusOr<std::vector<std::byte>> WeightBytes(const Matrix<float>& weights, DType dtype) {
  SPARSEFW_ASSIGN_OR_RETURN(std::vector<std::byte> bytes,
                            Zeros(weights.rows(), weights.cols(), SizeOf(dtype)));
  const auto convert = [&](auto to_stored) {
    std::byte* to = bytes.data();
    for (int64_t row = 0; row < weights.rows(); ++row) {
      for (int64_t col = 0; col < weights.cols(); ++col) {
        const auto value = to_stored(weights(row, col));
        std::memcpy(to, &value, sizeof(value));
        to += sizeof(value);
      }
    }
  };
  if (dtype == DType::kF16) {
    convert([](float value) { return ToHalf(value); });
  } else if (dtype == DType::kBF16) {
    convert([](float value) { return ToBFloat16(value); });
  } else {
    convert([](float value) { return value; });
  }
  return bytes;
}

}  // namespace sparsefw::server
