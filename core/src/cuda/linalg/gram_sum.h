// The launches of Gram accumulation. The sum [d_in, d_in] is kept in its upper triangle.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_GRAM_SUM_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_GRAM_SUM_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/raw_matrix.h"
#include "core/src/cuda/runtime/cuda_error.h"

namespace sparsefw::cuda {

// sum(first + i, first + j) += product(i, j), j >= i; product [rows, d_in - first].
CudaError LaunchAddProduct(const float* product, int64_t first, int64_t rows, int64_t d_in,
                           double* sum, cudaStream_t stream);

// sum(first + i, first + j) += (upper(i, j) + lower(j, i)) / 2, j >= i. Both are
// parts of a given G: upper is rows [first, first + rows), columns from `first` on, and
// lower is rows from `first` on, columns [first, first + rows).
CudaError LaunchAddMean(const RawMatrix& upper, const RawMatrix& lower, int64_t first, int64_t d_in,
                        double* sum, cudaStream_t stream);

// sum(j, i) = sum(i, j), j > i.
CudaError LaunchMirror(int64_t d_in, double* sum, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_GRAM_SUM_H_
