// The largest of a matrix of scores, by the selection of the iteration (core/src/cuda/select):
// of given scores, or of the saliency of W as sparsefw/saliency.h defines it.
#ifndef SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_SCORES_H_
#define SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_SCORES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/linalg/raw_matrix.h"
#include "core/src/cuda/runtime/cuda_error.h"
#include "sparsefw/kernel_types.h"

namespace sparsefw::cuda {

// A matrix to select from. Views of device memory.
struct SelectionSpace {
  int64_t rows = 0;
  int64_t cols = 0;
  unsigned char* scratch = nullptr;  // SelectionBytes, all 0 before its first use
  int64_t shared_bytes = 0;          // that a row may take of a block's shared memory
};

// bits [rows, StrideOf(cols) / 32] = the `groups.capacity` largest scores of every group, or
// `groups.total_kept` of the whole matrix; of equal scores the higher row-major index.
//
// Shapes: scores [rows, StrideOf(cols)]; those below 0 are never selected, and the padding's must
//         be below 0
// Cost:   up to 10 reads of the scores for the whole matrix, one where groups lie within rows
CudaError LaunchSelectLargest(const SelectionSpace& space, const double* scores,
                              const Groups& groups, BitWord* bits, cudaStream_t stream);

// W and SaliencySource::Terms. Views of device memory.
struct SalientWeights {
  RawMatrix weights;               // F32, F16, BF16
  const double* factor = nullptr;  // [cols]
  const double* row = nullptr;     // [rows], with column; null but for RIA
  const double* column = nullptr;  // [cols]
};

// scores [rows, StrideOf(cols)] = the saliency, by the operations of SaliencySource and so with its
// bits. The padding stays as it is.
CudaError LaunchSaliency(const SalientWeights& salient, float* scores, cudaStream_t stream);

// As LaunchSelectLargest, by the saliency, which is computed where it is read.
// among: [rows, StrideOf(cols) / 32], only these are selected; null: all
CudaError LaunchSelectSalient(const SelectionSpace& space, const SalientWeights& salient,
                              const BitWord* among, const Groups& groups, BitWord* bits,
                              cudaStream_t stream);

// Bytes of the scratch for matrices of up to so many rows and columns.
int64_t SelectionBytes(int64_t rows, int64_t cols);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_SCORES_H_
