// The largest of a matrix of scores, by the selection of the iteration (core/src/cuda/select).
#ifndef SPARSEFW_CORE_SRC_CUDA_PRUNE_SELECT_SCORES_H_
#define SPARSEFW_CORE_SRC_CUDA_PRUNE_SELECT_SCORES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/runtime/cuda_error.h"
#include "core/src/cuda/select/selection_keys.h"
#include "sparsefw/kernel_types.h"

namespace sparsefw::cuda {

// Scores below 0 are never selected: the padding has them. Views of device memory.
struct ScoreMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;              // StrideOf(cols)
  const double* scores = nullptr;  // [rows, stride]
  // Scratch for as many rows and columns, made by SelectionBuffers.
  const BitWord* none = nullptr;  // [rows, stride / 32], all 0
  Selection* selection = nullptr;
  unsigned* histogram = nullptr;  // all 0
  unsigned* ticket = nullptr;     // 0
  double* partial = nullptr;
  int64_t shared_bytes = 0;  // that a row may take of a block's shared memory
};

// bits [rows, stride / 32] = the `groups.capacity` largest scores of every group, or
// `groups.total_kept` of the whole matrix; of equal scores the higher row-major index.
//
// Cost: up to 10 reads of the scores for the whole matrix, one where groups lie within rows
CudaError LaunchSelectLargest(const ScoreMatrix& matrix, const Groups& groups, BitWord* bits,
                              cudaStream_t stream);
int64_t SelectionPartials(int64_t rows, int64_t stride);
int64_t SelectionBins();

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_PRUNE_SELECT_SCORES_H_
