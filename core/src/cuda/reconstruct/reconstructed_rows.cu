#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/reconstruct/reconstructed_rows.h"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/reconstruct/reconstruction_rules.h"
#include "core/src/reconstruct/rounded_value.h"

namespace sparsefw::cuda {
namespace {

template <typename Real>
__device__ double Masked(const ReconstructedRows<Real>& panel, int64_t row, int64_t col) {
  if (!BitOf(panel.kept + row * (panel.stride / 32), col)) return 0;
  return static_cast<double>(panel.weights[row * panel.stride + col]);
}

// Dividing by a power of two is exact, as long as the result is in range.
template <typename Real>
__device__ void TakeMasked(const ReconstructedRows<Real>& panel, int64_t row) {
  for (int64_t col = threadIdx.x; col < panel.cols; col += kBlockThreads) {
    const int64_t index = row * panel.stride + col;
    panel.result[index] = panel.guess != nullptr
                              ? panel.guess[index]
                              : static_cast<float>(Masked(panel, row, col) / panel.factor);
  }
}

// All of them: one block a row.
template <typename Real>
__global__ void TakeMaskedKernel(ReconstructedRows<Real> panel) {
  TakeMasked(panel, blockIdx.x);
}

template <typename Real>
__global__ void KeepBetterKernel(ReconstructedRows<Real> panel, const double* masked_losses,
                                 const double* losses) {
  const int64_t row = blockIdx.x;
  double squares = 0;
  for (int64_t col = threadIdx.x; col < panel.cols; col += kBlockThreads) {
    const int64_t index = row * panel.stride + col;
    const double missing = static_cast<double>(panel.weights[index]) -
                           static_cast<double>(panel.result[index]) * panel.factor;
    squares += missing * missing * static_cast<double>(panel.gram[col * (panel.stride + 1)]);
  }
  const double rounding = panel.gram_rounding * BlockSum(squares);
  if (!LosesLess(losses[row], rounding, masked_losses[row])) TakeMasked(panel, row);
}

template <typename Real>
__global__ void TakeSolutionKernel(ReconstructedRows<Real> panel, const Real* solution) {
  const int64_t row = blockIdx.x;
  const BitWord* kept = panel.kept + row * (panel.stride / 32);
  for (int64_t col = threadIdx.x; col < panel.cols; col += kBlockThreads) {
    if (!BitOf(kept, col)) continue;
    const int64_t index = row * panel.stride + col;
    const double start = panel.guess != nullptr
                             ? static_cast<double>(panel.guess[index]) * panel.factor
                             : static_cast<double>(panel.weights[index]);
    const double weight = start + static_cast<double>(solution[index]);
    panel.result[index] = RoundedTo(panel.dtype, weight / panel.factor);
  }
}

}  // namespace

template <typename Real>
CudaError LaunchTakeMasked(const ReconstructedRows<Real>& panel, cudaStream_t stream) {
  return Launch(TakeMaskedKernel<Real>, {.blocks_x = panel.rows}, stream, panel);
}

template <typename Real>
CudaError LaunchKeepBetter(const ReconstructedRows<Real>& panel, const double* masked_losses,
                           const double* losses, cudaStream_t stream) {
  return Launch(KeepBetterKernel<Real>, {.blocks_x = panel.rows}, stream, panel, masked_losses,
                losses);
}

template <typename Real>
CudaError LaunchTakeSolution(const ReconstructedRows<Real>& panel, const Real* solution,
                             cudaStream_t stream) {
  return Launch(TakeSolutionKernel<Real>, {.blocks_x = panel.rows}, stream, panel, solution);
}

#define SPARSEFW_INSTANTIATE(Real)                                                   \
  template CudaError LaunchTakeMasked(const ReconstructedRows<Real>&, cudaStream_t); \
  template CudaError LaunchKeepBetter(const ReconstructedRows<Real>&, const double*, \
                                      const double*, cudaStream_t);                  \
  template CudaError LaunchTakeSolution(const ReconstructedRows<Real>&, const Real*, cudaStream_t);
SPARSEFW_INSTANTIATE(float)
SPARSEFW_INSTANTIATE(double)
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
