// The launches of conjugate gradients on many rows at once; reconstruct.h says
// what for.
#ifndef SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_ROW_GRADIENTS_H_
#define SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_ROW_GRADIENTS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/reconstruct/gradient_row.h"
#include "core/src/cuda/runtime/cuda_error.h"

namespace sparsefw::cuda {

// Views of device memory; no ownership. Directions and products are those of
// the rows in `active`, one after the other; everything else is by row.
template <typename Real>
struct GradientPanel {
  int64_t cols;
  int64_t stride;
  const Real* preconditioner;  // [stride]: 1 / G_jj, 0 where G_jj is 0
  const BitWord* kept;         // [rows, stride / 32]
  Real* solution;              // d, [rows, stride]
  Real* residual;              // r, 0 outside the mask
  Real* direction;             // p
  Real* product;               // p G, but for
  const Real* product_scale;   // null: 1; what rows of `product` are to be multiplied by
  GradientRow* rows;
  const int* active;  // row of every position
  bool solved_before;
};

template <typename Real>
CudaError LaunchPreconditioner(const Real* gram, int64_t cols, int64_t stride, Real* preconditioner,
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

#endif  // SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_ROW_GRADIENTS_H_
