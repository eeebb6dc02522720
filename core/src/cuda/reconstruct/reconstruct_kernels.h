// The launches of reconstruction; reconstruct.h says what for.
#ifndef SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_RECONSTRUCT_KERNELS_H_
#define SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_RECONSTRUCT_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/reconstruct/gradient_row.h"
#include "core/src/cuda/runtime/cuda_error.h"
#include "sparsefw/kernel_types.h"

namespace sparsefw::cuda {

// One panel of rows with weights in the dtype they will have. Views; no ownership.
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

// The state of conjugate gradients on a panel. Views; no ownership. Directions and products are
// those of the rows in `active`, one after the other; everything else is by row.
template <typename Real>
struct GradientPanel {
  int64_t cols;
  int64_t stride;
  Real* preconditioner;       // [stride]: 1 / G_jj, 0 where G_jj is 0
  const BitWord* kept;        // [rows, stride / 32]
  Real* solution;             // d, [rows, stride]
  Real* residual;             // r, 0 outside the mask
  Real* direction;            // p
  Real* product;              // p G, but for
  const Real* product_scale;  // null: 1; what rows of `product` are to be multiplied by
  GradientRow* rows;
  int* active;  // row of every position
  bool solved_before;
};

// The preconditioner, from gram [cols, stride].
template <typename Real>
CudaError LaunchPreconditioner(const GradientPanel<Real>& panel, const Real* gram,
                               cudaStream_t stream);

// d = 0, r = `residual` [count, stride] on the mask, p = z of rows 0 .. count - 1,
// which are positions 0 .. count - 1. *unfinished: added to, the rows not done.
template <typename Real>
CudaError LaunchBeginGradients(const GradientPanel<Real>& panel, int64_t count,
                               const double* residual, const double* losses, int* unfinished,
                               cudaStream_t stream);

// A step of the rows at positions 0 .. count - 1 that are not done.
template <typename Real>
CudaError LaunchGradientStep(const GradientPanel<Real>& panel, int64_t count, int64_t iteration,
                             int* unfinished, cudaStream_t stream);

// to[i] = direction[from[i]], i = 0 .. count - 1: rows of `stride` elements.
template <typename Real>
CudaError LaunchGather(const Real* direction, const int* from, int64_t count, int64_t stride,
                       Real* to, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_RECONSTRUCT_KERNELS_H_
