// Narrow groups: swap_kernels.h.
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/cuda/swaps/swap_kernels.h"
#include "core/src/cuda/swaps/swap_row.cuh"

namespace sparsefw::cuda {
namespace {

// The best exchange of p with a q of its group.
template <typename Real>
__device__ Exchange BestOf(const SwapRow<Real>& row, int64_t p, int64_t first, int64_t end) {
  const double out = row.Out(p);
  const double weight = row.Weight(p);
  Exchange best = NoExchange();
  for (int64_t q = first; q < end; ++q) {
    if (row.Kept(q)) continue;
    const double in = WithPartner(row.In(q), weight, row.Weight(q), row.Gram(p, q));
    best = BetterExchange(best, {out + in, p, q});
  }
  return best;
}

template <typename Real>
__device__ Exchange BestOfRow(const SwapRow<Real>& row, int64_t group_cols) {
  Exchange best = NoExchange();
  for (int64_t p = threadIdx.x; p < row.cols; p += kBlockThreads) {
    if (!row.Movable(p)) continue;
    // In 32 bits, where a division is cheap.
    const int64_t first = p - static_cast<int>(p) % static_cast<int>(group_cols);
    best = BetterExchange(best, BestOf(row, p, first, first + group_cols));
  }
  return BlockReduce(best,
                     [](const Exchange& a, const Exchange& b) { return BetterExchange(a, b); });
}

// One block a row.
template <typename Real>
__global__ void __launch_bounds__(kBlockThreads, 3)  // a fourth would spill registers
    SwapGroupsKernel(SwapState<Real> state, int steps, int* active) {
  const int64_t index = blockIdx.x;
  RowProgress progress = state.progress[index];
  if (progress.done != 0) return;
  double* row_product = state.product + index * state.stride;
  const bool shared = state.shared_bytes > 0;
  SwapRow<Real> row(state, index, TakeProduct(row_product, state.stride, shared));
  for (int step = 0; step < steps && progress.done == 0; ++step) {
    const Exchange best = BestOfRow(row, state.group_cols);
    if (!(best.change < -row.tolerance)) {
      progress.done = 1;
      break;
    }
    row.Swap(best.p, best.q);
    ++progress.swaps;
    progress.loss_change += best.change;
  }
  ReturnProduct(row.product, row_product, state.stride, shared);
  if (threadIdx.x != 0) return;
  state.progress[index] = progress;
  if (progress.done == 0) atomicAdd(active, 1);
}

}  // namespace

template <typename Real>
CudaError LaunchSwapGroups(const SwapState<Real>& state, int steps, int* active,
                           cudaStream_t stream) {
  const LaunchShape shape = {.blocks_x = state.rows, .shared_bytes = state.shared_bytes};
  return Launch(SwapGroupsKernel<Real>, shape, stream, state, steps, active);
}

template CudaError LaunchSwapGroups(const SwapState<float>&, int, int*, cudaStream_t);
template CudaError LaunchSwapGroups(const SwapState<double>&, int, int*, cudaStream_t);

}  // namespace sparsefw::cuda
