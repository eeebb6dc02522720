// A bit-packed mask over a matrix: 1 = keep.
#ifndef SPARSEFW_MASK_H_
#define SPARSEFW_MASK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace sparsefw {

// The bytes are the wire format U1: every row starts on a byte, within a byte
// the least significant bit is the lowest column, padding bits are zero.
// Copyable. Distinct rows may be written from distinct threads.
class Mask {
 public:
  Mask() = default;
  Mask(int64_t rows, int64_t cols);  // all zero

  // Errors: InvalidArgument  size is not rows * ceil(cols / 8), or a padding bit is set.
  static absl::StatusOr<Mask> FromBytes(int64_t rows, int64_t cols,
                                        std::span<const std::byte> bytes);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t row_bytes() const { return (cols_ + 7) / 8; }
  bool empty() const { return bytes_.empty(); }

  bool Get(int64_t row, int64_t col) const { return (bytes_[Index(row, col)] >> (col & 7)) & 1; }
  void Set(int64_t row, int64_t col, bool keep) {
    uint8_t& byte = bytes_[Index(row, col)];
    const auto bit = static_cast<uint8_t>(1U << (col & 7));
    byte = static_cast<uint8_t>(keep ? byte | bit : byte & ~bit);
  }

  const uint8_t* row(int64_t row) const { return bytes_.data() + row * row_bytes(); }
  uint8_t* row(int64_t row) { return bytes_.data() + row * row_bytes(); }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

  int64_t CountKept() const;
  int64_t CountKeptInRow(int64_t row) const { return CountKeptIn(row, 0, cols_); }
  // Counts those in columns [first, first + count).
  int64_t CountKeptIn(int64_t row, int64_t first, int64_t count) const;

  friend bool operator==(const Mask&, const Mask&) = default;

 private:
  size_t Index(int64_t row, int64_t col) const {
    return static_cast<size_t>(row * row_bytes() + (col >> 3));
  }
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  std::vector<uint8_t> bytes_;
};

}  // namespace sparsefw

#endif  // SPARSEFW_MASK_H_
