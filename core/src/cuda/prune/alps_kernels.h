// The launches of ALPS: sparsefw/alps.h says what it computes. Matrices of rows are [rows, stride]
// in float64 with their padding 0.
#ifndef SPARSEFW_CORE_SRC_CUDA_PRUNE_ALPS_KERNELS_H_
#define SPARSEFW_CORE_SRC_CUDA_PRUNE_ALPS_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/runtime/cuda_error.h"
#include "sparsefw/kernel_types.h"

namespace sparsefw::cuda {

// What the steps on the support keep of a row.
struct SupportRow {
  double squares;  // of the residual
  double wanted;   // where it is small enough
};

// Views of device memory; no ownership.
struct AlpsRows {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  const double* dense = nullptr;  // B0
  const double* y = nullptr;      // B0 H
  double* b = nullptr;
  double* d = nullptr;            // D; the residual of the steps on the support
  double* v = nullptr;            // V; the direction of these steps
  double* right = nullptr;        // Y - V + rho D; scores; products of the steps
  BitWord* kept = nullptr;        // the support: [rows, stride / 32]
  SupportRow* support = nullptr;  // [rows]
};

// gram(i, j) = gram(i, j) / (norms_i norms_j), `added` to its diagonal before; [size, stride].
CudaError LaunchNormalise(double* gram, const double* norms, double added, int64_t size,
                          int64_t stride, cudaStream_t stream);
// matrix [rows, stride]: column j times factors[j], or 0 where that is 0.
CudaError LaunchScaleColumns(double* matrix, const double* factors, int64_t rows, int64_t cols,
                             int64_t stride, cudaStream_t stream);

// right = |matrix|, -1 in the padding: scores.
CudaError LaunchMagnitudes(const AlpsRows& it, const double* matrix, cudaStream_t stream);
// D = B0 where `kept` has it, V = 0.
CudaError LaunchBeginAlternation(const AlpsRows& it, const BitWord* kept, cudaStream_t stream);
// right = Y - V + rho D.
CudaError LaunchRightSide(const AlpsRows& it, double rho, cudaStream_t stream);
// right = |V + rho B| / rho, -1 in the padding: scores.
CudaError LaunchSupportScores(const AlpsRows& it, double rho, cudaStream_t stream);
// D = V / rho + B on the support, V += rho (B - D).
CudaError LaunchUpdateDual(const AlpsRows& it, double rho, cudaStream_t stream);
// *changed += the bits in which the two differ; then `checked` is `kept`.
CudaError LaunchCountChanged(const BitWord* kept, BitWord* checked, int64_t words,
                             unsigned long long* changed, cudaStream_t stream);

// B = 0 outside the support.
CudaError LaunchKeepSupport(const AlpsRows& it, cudaStream_t stream);
// The residual Y - right on the support, which is the first direction. *unfinished += the rows
// whose residual is above `tolerance` of where it would be at 0.
CudaError LaunchBeginSupport(const AlpsRows& it, double tolerance, unsigned long long* unfinished,
                             cudaStream_t stream);
// A step of conjugate gradients in every row, right the product of its direction; counts as before.
CudaError LaunchSupportStep(const AlpsRows& it, unsigned long long* unfinished,
                            cudaStream_t stream);

// out [rows, cols] = weights / norms, times `factor`, on `kept`, rounded to `dtype`; 0 elsewhere.
// norms may be null.
struct NewWeights {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  const double* weights = nullptr;
  const double* norms = nullptr;
  const BitWord* kept = nullptr;
  double factor = 1;
  DType dtype = DType::kF32;
  float* out = nullptr;
};
CudaError LaunchNewWeights(const NewWeights& args, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_PRUNE_ALPS_KERNELS_H_
