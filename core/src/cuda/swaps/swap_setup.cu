#include <cmath>

#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/cuda/swaps/swap_kernels.h"
#include "core/src/frank_wolfe/swap_tolerance.h"

namespace sparsefw::cuda {
namespace {

__device__ double Larger(double a, double b) { return a > b ? a : b; }

template <typename Real>
__global__ void DiagonalKernel(const Real* gram, int64_t cols, int64_t stride, double* diagonal) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (col >= stride) return;
  diagonal[col] = col < cols ? static_cast<double>(gram[col * stride + col]) : 0;
}

// One block a row of G.
template <typename Real>
__global__ void ReachKernel(const Real* gram, int64_t cols, int64_t stride, const double* diagonal,
                            double* reach) {
  const int64_t p = blockIdx.x;
  double largest = 0;
  for (int64_t j = threadIdx.x; j < cols; j += kBlockThreads) {
    const double entry = fabs(static_cast<double>(gram[p * stride + j]));
    if (j != p && entry > 0) largest = Larger(largest, entry / sqrt(diagonal[j]));
  }
  largest = BlockReduce(largest, [](double a, double b) { return Larger(a, b); });
  if (threadIdx.x == 0) reach[p] = largest;
}

// One block a row.
template <typename Real>
__global__ void ToleranceKernel(SwapState<Real> state) {
  const int64_t row = blockIdx.x;
  const BitWord* kept = state.kept + row * (state.stride / 32);
  double loss = 0;
  double squares = 0;
  for (int64_t col = threadIdx.x; col < state.cols; col += kBlockThreads) {
    const auto weight = static_cast<double>(state.weights[row * state.stride + col]);
    squares += weight * weight * state.diagonal[col];
    if (!BitOf(kept, col)) loss += weight * state.product[row * state.stride + col];
  }
  loss = BlockSum(loss);
  squares = BlockSum(squares);
  if (threadIdx.x != 0) return;
  state.tolerance[row] = kSwapTolerance * Larger(0, loss) + kSwapNoise * squares;
}

}  // namespace

template <typename Real>
CudaError LaunchDiagonal(const SwapState<Real>& it, cudaStream_t stream) {
  const int64_t blocks = (it.stride + kBlockThreads - 1) / kBlockThreads;
  SPARSEFW_RETURN_IF_CUDA_ERROR(Launch(DiagonalKernel<Real>, {.blocks_x = blocks}, stream, it.gram,
                                       it.cols, it.stride, it.diagonal));
  return Launch(ReachKernel<Real>, {.blocks_x = it.cols}, stream, it.gram, it.cols, it.stride,
                it.diagonal, it.reach);
}

template <typename Real>
CudaError LaunchTolerance(const SwapState<Real>& state, cudaStream_t stream) {
  return Launch(ToleranceKernel<Real>, {.blocks_x = state.rows}, stream, state);
}

template CudaError LaunchDiagonal(const SwapState<float>&, cudaStream_t);
template CudaError LaunchDiagonal(const SwapState<double>&, cudaStream_t);
template CudaError LaunchTolerance(const SwapState<float>&, cudaStream_t);
template CudaError LaunchTolerance(const SwapState<double>&, cudaStream_t);

}  // namespace sparsefw::cuda
