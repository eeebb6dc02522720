// A bit per weight, in 64-bit words: the form in which the kernels use sets of
// coordinates. Rows start on a word; padding bits are zero.
#ifndef SPARSEFW_CORE_SRC_CPU_BIT_ROWS_H_
#define SPARSEFW_CORE_SRC_CPU_BIT_ROWS_H_

#include <bit>
#include <cstdint>

#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

class BitRows {
 public:
  BitRows() = default;
  BitRows(int64_t rows, int64_t cols) : bits_(rows, (cols + 63) / 64) {}

  int64_t words() const { return bits_.cols(); }
  uint64_t* row(int64_t row) { return bits_.row(row); }
  const uint64_t* row(int64_t row) const { return bits_.row(row); }
  bool Get(int64_t row, int64_t col) const { return (bits_(row, col >> 6) >> (col & 63)) & 1; }
  void Set(int64_t row, int64_t col) { bits_(row, col >> 6) |= uint64_t{1} << (col & 63); }
  void Flip(int64_t row, int64_t col) { bits_(row, col >> 6) ^= uint64_t{1} << (col & 63); }

 private:
  Matrix<uint64_t> bits_;
};

// Calls body(col) for every set bit of word `word` of a row, in ascending order.
template <typename Body>
void ForEachBit(uint64_t bits, int64_t word, const Body& body) {
  for (; bits != 0; bits &= bits - 1) body(word * 64 + std::countr_zero(bits));
}

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_BIT_ROWS_H_
