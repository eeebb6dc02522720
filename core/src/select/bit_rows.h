// A bit per weight, in 64-bit words: the form in which the kernels use sets of
// coordinates. Rows start on a word; padding bits are zero.
#ifndef SPARSEFW_CORE_SRC_SELECT_BIT_ROWS_H_
#define SPARSEFW_CORE_SRC_SELECT_BIT_ROWS_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

// Bit `col` of a row of words.
inline bool GetBit(const uint64_t* words, int64_t col) {
  return (words[col >> 6] >> (col & 63)) & 1;
}
inline void SetBit(uint64_t* words, int64_t col) { words[col >> 6] |= uint64_t{1} << (col & 63); }
inline void PutBit(uint64_t* words, int64_t col, bool value) {
  const uint64_t bit = uint64_t{1} << (col & 63);
  words[col >> 6] = value ? words[col >> 6] | bit : words[col >> 6] & ~bit;
}

class BitRows {
 public:
  BitRows() = default;
  BitRows(int64_t rows, int64_t cols) : bits_(rows, (cols + 63) / 64) {}
  // The bytes of a mask's row are those of its words: the lowest column is the
  // lowest bit in both, and padding is zero.
  explicit BitRows(const Mask& mask) : BitRows(mask.rows(), mask.cols()) {
    static_assert(std::endian::native == std::endian::little);
    for (int64_t row = 0; row < mask.rows(); ++row) {
      std::memcpy(bits_.row(row), mask.row(row), static_cast<size_t>(mask.row_bytes()));
    }
  }

  int64_t words() const { return bits_.cols(); }
  uint64_t* row(int64_t row) { return bits_.row(row); }
  const uint64_t* row(int64_t row) const { return bits_.row(row); }
  std::span<uint64_t> span() { return bits_.span(); }
  bool Get(int64_t row, int64_t col) const { return GetBit(bits_.row(row), col); }
  void Set(int64_t row, int64_t col) { SetBit(bits_.row(row), col); }
  void Flip(int64_t row, int64_t col) { bits_(row, col >> 6) ^= uint64_t{1} << (col & 63); }

 private:
  Matrix<uint64_t> bits_;
};

// Calls body(col) for every set bit of word `word` of a row, in ascending order.
template <typename Body>
void ForEachBit(uint64_t bits, int64_t word, const Body& body) {
  for (; bits != 0; bits &= bits - 1) body(word * 64 + std::countr_zero(bits));
}

// Calls body(col) for every bit in which two rows of `words` words differ, in ascending order.
template <typename Body>
void ForEachDifference(const uint64_t* a, const uint64_t* b, int64_t words, const Body& body) {
  for (int64_t word = 0; word < words; ++word) ForEachBit(a[word] ^ b[word], word, body);
}

// Set bits of a word. Programs for any x86-64 have no instruction for it, and std::popcount calls
// a function.
inline int64_t PopCount(uint64_t word) {
#ifdef __POPCNT__
  return std::popcount(word);
#else
  constexpr uint64_t kPairs = 0x5555555555555555;
  constexpr uint64_t kFours = 0x3333333333333333;
  constexpr uint64_t kBytes = 0x0f0f0f0f0f0f0f0f;
  word -= (word >> 1) & kPairs;
  word = (word & kFours) + ((word >> 2) & kFours);
  word = (word + (word >> 4)) & kBytes;
  return static_cast<int64_t>((word * 0x0101010101010101) >> 56);
#endif
}

inline int64_t CountBits(const uint64_t* words, int64_t count) {
  int64_t sum = 0;
  for (int64_t word = 0; word < count; ++word) sum += PopCount(words[word]);
  return sum;
}

inline int64_t CountDifferences(const uint64_t* a, const uint64_t* b, int64_t words) {
  int64_t sum = 0;
  for (int64_t word = 0; word < words; ++word) sum += PopCount(a[word] ^ b[word]);
  return sum;
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SELECT_BIT_ROWS_H_
