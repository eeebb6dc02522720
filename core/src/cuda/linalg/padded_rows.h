// The layout of matrices and masks on the device.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_PADDED_ROWS_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_PADDED_ROWS_H_

#include <cstdint>

namespace sparsefw::cuda {

// Rows of device matrices begin at multiples of this many elements; the padding
// is zero, in masks too.
inline constexpr int64_t kRowAlignment = 64;

inline int64_t StrideOf(int64_t cols) {
  return (cols + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

// Sets of columns are rows of 32-bit words, the least significant bit the
// lowest column: the bytes of Mask, padded to `stride / 32` words a row.
using BitWord = uint32_t;

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_PADDED_ROWS_H_
