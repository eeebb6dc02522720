#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/cuda/swaps/swap_kernels.h"
#include "core/src/cuda/swaps/swap_row.cuh"
#include "core/src/cuda/swaps/swap_terms.h"

namespace sparsefw::cuda {
namespace {

template <typename Real>
__device__ RowTerms FindTerms(const SwapRow<Real>& row) {
  RowTerms best = {NoTerm(), NoTerm()};
  for (int64_t col = threadIdx.x; col < row.cols; col += kBlockThreads) {
    if (!row.Kept(col)) {
      best.in = BetterIn(best.in, {row.In(col), col});
    } else if (row.Movable(col)) {
      best.out = CheaperOut(best.out, {row.Out(col), col});
    }
  }
  return BlockReduce(best, [](const RowTerms& a, const RowTerms& b) {
    return RowTerms{CheaperOut(a.out, b.out), BetterIn(a.in, b.in)};
  });
}

// One block a row.
template <typename Real>
__global__ void __launch_bounds__(kBlockThreads)
    RowTermsKernel(SwapState<Real> state, RowTerms* terms) {
  const int64_t index = blockIdx.x;
  const SwapRow<Real> row(state, index, state.product + index * state.stride);
  const RowTerms found = FindTerms(row);
  if (threadIdx.x == 0) terms[index] = found;
}

// One block a move; the grid has room for the most that a round may have.
template <typename Real>
__global__ void __launch_bounds__(kBlockThreads)
    RowMovesKernel(SwapState<Real> state, const RowMove* moves, const RowExchanges* exchanges,
                   RowTerms* terms) {
  if (static_cast<int64_t>(blockIdx.x) >= exchanges->moves) return;
  const RowMove move = moves[blockIdx.x];
  const SwapRow<Real> row(state, move.row, state.product + move.row * state.stride);
  const double weight = row.Weight(move.col);
  const double factor = row.Kept(move.col) ? weight : -weight;
  for (int64_t col = threadIdx.x; col < row.cols; col += kBlockThreads) {
    row.product[col] += factor * row.Gram(move.col, col);
  }
  __syncthreads();  // all have seen whether it is kept
  if (threadIdx.x == 0) {
    row.kept[move.col >> 5] ^= BitWord{1} << (move.col & 31);
    RowProgress& progress = state.progress[move.row];
    progress.first = progress.proven = 0;
    progress.moved = progress.done = progress.listed = progress.place = 0;
  }
  __syncthreads();
  const RowTerms found = FindTerms(row);
  if (threadIdx.x == 0) terms[move.row] = found;
}

}  // namespace

template <typename Real>
CudaError LaunchRowTerms(const SwapState<Real>& state, RowTerms* terms, cudaStream_t stream) {
  return Launch(RowTermsKernel<Real>, {.blocks_x = state.rows}, stream, state, terms);
}

template <typename Real>
CudaError LaunchRowMoves(const SwapState<Real>& state, const RowMove* moves,
                         const RowExchanges* exchanges, RowTerms* terms, cudaStream_t stream) {
  const LaunchShape shape = {.blocks_x = state.rows < kMostMoves ? state.rows : kMostMoves};
  return Launch(RowMovesKernel<Real>, shape, stream, state, moves, exchanges, terms);
}

template CudaError LaunchRowTerms(const SwapState<float>&, RowTerms*, cudaStream_t);
template CudaError LaunchRowTerms(const SwapState<double>&, RowTerms*, cudaStream_t);
template CudaError LaunchRowMoves(const SwapState<float>&, const RowMove*, const RowExchanges*,
                                  RowTerms*, cudaStream_t);
template CudaError LaunchRowMoves(const SwapState<double>&, const RowMove*, const RowExchanges*,
                                  RowTerms*, cudaStream_t);

}  // namespace sparsefw::cuda
