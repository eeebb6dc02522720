// The launches of reconstruction that see weights in the dtype they will have;
// reconstruct.h says what for.
#ifndef SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_RECONSTRUCTED_ROWS_H_
#define SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_RECONSTRUCTED_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/runtime/cuda_error.h"
#include "sparsefw/kernel_types.h"

namespace sparsefw::cuda {

// Views of one panel of rows; no ownership.
template <typename Real>
struct ReconstructedRows {
  int64_t rows;
  int64_t cols;
  int64_t stride;
  const Real* weights;   // [rows, stride], scaled
  const Real* gram;      // [cols, stride], scaled
  double gram_rounding;  // GramRounding
  const BitWord* kept;   // [rows, stride / 32]
  float* result;         // [rows, stride], in the caller's units and dtype
  double factor;         // of the scaled weights: an exact power of two
  DType dtype;
  const float* guess = nullptr;  // [rows, stride], in place of M.W where rows begin
};

// result = M.W, or the guess, in every row; or, with losses, in those that do not lose less
// (LosesLess).
template <typename Real>
CudaError LaunchTakeMasked(const ReconstructedRows<Real>& panel, cudaStream_t stream);
template <typename Real>
CudaError LaunchKeepBetter(const ReconstructedRows<Real>& panel, const double* masked_losses,
                           const double* losses, cudaStream_t stream);

// result = W + d, or the guess + d, on the mask, rounded.
template <typename Real>
CudaError LaunchTakeSolution(const ReconstructedRows<Real>& panel, const Real* solution,
                             cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_RECONSTRUCTED_ROWS_H_
