#include "server/app/pruned_weight.h"

#include <cstring>
#include <new>

#include "absl/strings/str_format.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {

absl::StatusOr<std::vector<std::byte>> PrunedWeight(ConstMatrixView weights, const Mask& mask) {
  const size_t element = SizeOf(weights.dtype());
  const size_t row_bytes = static_cast<size_t>(weights.cols()) * element;
  std::vector<std::byte> bytes;
  try {
    bytes.resize(static_cast<size_t>(weights.rows()) * row_bytes);  // zeros
  } catch (const std::bad_alloc&) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrFormat("no memory for a pruned weight of [%d, %d]",
                                                     weights.rows(), weights.cols())),
        "HOST_MEMORY");
  }
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

}  // namespace sparsefw::server
