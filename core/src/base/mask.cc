#include "sparsefw/mask.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "sparsefw/reason.h"

namespace sparsefw {

Mask::Mask(int64_t rows, int64_t cols)
    : rows_(rows), cols_(cols), bytes_(static_cast<size_t>(rows * ((cols + 7) / 8))) {}

absl::StatusOr<Mask> Mask::FromBytes(int64_t rows, int64_t cols, std::span<const std::byte> bytes) {
  const int64_t row_bytes = cols / 8 + (cols % 8 != 0 ? 1 : 0);
  // Divided, since a product of sizes that nobody can have would overflow.
  const auto size = static_cast<int64_t>(bytes.size());
  const bool fits =
      rows > 0 && row_bytes > 0 ? size % rows == 0 && size / rows == row_bytes : size == 0;
  if (rows < 0 || cols < 0 || cols > std::numeric_limits<int64_t>::max() - 7 || !fits) {
    return Invalid("SHAPE_MISMATCH",
                   "a mask of shape [%d, %d] must be rows*ceil(cols/8) bytes; got %d bytes", rows,
                   cols, bytes.size());
  }
  Mask mask(rows, cols);
  if (!bytes.empty()) std::memcpy(mask.bytes_.data(), bytes.data(), bytes.size());
  const int used = static_cast<int>(cols % 8);
  if (used != 0) {
    const auto padding = static_cast<uint8_t>(0xFFU << used);
    for (int64_t row = 0; row < rows; ++row) {
      if ((mask.row(row)[row_bytes - 1] & padding) != 0) {
        return Invalid("MASK_PADDING",
                       "padding bits of a mask must be 0; row %d of shape [%d, %d] has one set",
                       row, rows, cols);
      }
    }
  }
  return mask;
}

int64_t Mask::CountKept() const {
  int64_t count = 0;
  for (int64_t row = 0; row < rows_; ++row) count += CountKeptInRow(row);
  return count;
}

int64_t Mask::CountKeptIn(int64_t row, int64_t first, int64_t count) const {
  const uint8_t* bytes = this->row(row);
  const int64_t end = first + count;
  int64_t kept = 0;
  for (int64_t col = first; col < end;) {
    if (col % 8 == 0 && end - col >= 64) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + col / 8, sizeof(word));
      kept += std::popcount(word);
      col += 64;
      continue;
    }
    const int64_t bits = std::min(8 - col % 8, end - col);
    const unsigned wanted = (1U << bits) - 1;
    kept += std::popcount((unsigned{bytes[col / 8]} >> (col % 8)) & wanted);
    col += bits;
  }
  return kept;
}

}  // namespace sparsefw
