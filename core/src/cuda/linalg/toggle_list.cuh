// The columns at which two rows of bits differ, listed in shared memory.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_TOGGLE_LIST_CUH_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_TOGGLE_LIST_CUH_

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/linalg/reduce.cuh"

namespace sparsefw::cuda {

// Words of bits whose toggles are listed at once: 2048 columns.
inline constexpr int kListedWords = 64;
inline constexpr int kListedColumns = kListedWords * 32;

// Those of kListedWords words of a row, in ascending order.
template <typename Real>
struct ToggleList {
  int columns[kListedColumns];
  Real deltas[kListedColumns];
};

// Fills the list from word `first` of two rows of `words` words, with delta(column) for each, and
// says how many there are. Every thread of the block calls it; there is a barrier at its end.
template <typename Real, typename Delta>
__device__ int ListToggles(const BitWord* before, const BitWord* after, int64_t words,
                           int64_t first, const Delta& delta, ToggleList<Real>& list) {
  const int64_t word = first + threadIdx.x;
  BitWord toggled = 0;
  if (threadIdx.x < kListedWords && word < words) toggled = before[word] ^ after[word];
  int total = 0;
  int position = BlockExclusiveScan(__popc(toggled), &total);
  while (toggled != 0) {
    const int64_t col = word * 32 + __ffs(static_cast<int>(toggled)) - 1;
    toggled &= toggled - 1;
    list.columns[position] = static_cast<int>(col);
    list.deltas[position] = delta(col);
    ++position;
  }
  __syncthreads();
  return total;
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_TOGGLE_LIST_CUH_
