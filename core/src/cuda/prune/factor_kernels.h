// The launches around the factorisation of a symmetric matrix: inverse_factor.h. Matrices are
// [size, stride] in float64, stride = StrideOf(size).
#ifndef SPARSEFW_CORE_SRC_CUDA_PRUNE_FACTOR_KERNELS_H_
#define SPARSEFW_CORE_SRC_CUDA_PRUNE_FACTOR_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/runtime/cuda_error.h"

namespace sparsefw::cuda {

// diagonal [size] = that of the matrix.
CudaError LaunchDiagonal(const double* matrix, int64_t size, int64_t stride, double* diagonal,
                         cudaStream_t stream);

// out = matrix with diagonal + added in place of its own; `reversed`: from the last row and column
// to the first. The padding of `out` is left alone.
CudaError LaunchShifted(const double* matrix, const double* diagonal, double added, bool reversed,
                        int64_t size, int64_t stride, double* out, cudaStream_t stream);
CudaError LaunchIdentity(int64_t size, int64_t stride, double* out, cudaStream_t stream);

// out = `lower` from the last row and column to the first: upper triangular, its padding 0.
CudaError LaunchReversed(const double* lower, int64_t size, int64_t stride, double* out,
                         cudaStream_t stream);

struct SmallPivot {
  int64_t place;  // in the order of the factorisation; `size`: there is none
  double pivot;
  double diagonal;
};
// The first pivot of a lower triangular factor below size * 2^-52 of its diagonal; else the one at
// which the factorisation ended, `info` counted from 1, 0 where it did not.
CudaError LaunchFindSmallPivot(const double* factor, const double* diagonal, double added,
                               bool reversed, int64_t size, int64_t stride, const int* info,
                               SmallPivot* found, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_PRUNE_FACTOR_KERNELS_H_
