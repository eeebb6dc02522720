// One row as the kernels of swap refinement see it. Every thread of a block
// holds the same values; thread 0 writes what the block shares.
#ifndef SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_ROW_CUH_
#define SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_ROW_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/cuda/swaps/swap_kernels.h"
#include "core/src/cuda/swaps/swap_terms.h"

namespace sparsefw::cuda {

template <typename Real>
struct SwapRow {
  int64_t cols;
  int64_t stride;
  const Real* weights;
  const Real* gram;
  const double* diagonal;
  const BitWord* locked;  // or null
  BitWord* kept;
  double* product;  // in shared or in global memory
  double tolerance;

  __device__ SwapRow(const SwapState<Real>& state, int64_t row, double* row_product)
      : cols(state.cols),
        stride(state.stride),
        weights(state.weights + row * state.stride),
        gram(state.gram),
        diagonal(state.diagonal),
        locked(state.locked == nullptr ? nullptr : state.locked + row * (state.stride / 32)),
        kept(state.kept + row * (state.stride / 32)),
        product(row_product),
        tolerance(state.tolerance[row]) {}

  __device__ double Weight(int64_t col) const { return static_cast<double>(weights[col]); }
  __device__ double Gram(int64_t row, int64_t col) const {
    return static_cast<double>(gram[row * stride + col]);
  }
  __device__ bool Kept(int64_t col) const { return BitOf(kept, col); }
  __device__ bool Movable(int64_t col) const {
    return Kept(col) && (locked == nullptr || !BitOf(locked, col));
  }
  __device__ double Out(int64_t col) const {
    return OutTerm(Weight(col), product[col], diagonal[col]);
  }
  __device__ double In(int64_t col) const {
    return InTerm(Weight(col), product[col], diagonal[col]);
  }

  // p goes out and q comes in. All threads call it; they see E and the mask changed afterwards.
  __device__ void Swap(int64_t p, int64_t q) {
    const double factor_p = Weight(p);
    const double factor_q = Weight(q);
    for (int64_t col = threadIdx.x; col < cols; col += kBlockThreads) {
      product[col] += factor_p * Gram(p, col) - factor_q * Gram(q, col);
    }
    if (threadIdx.x == 0) {
      kept[p >> 5] ^= BitWord{1} << (p & 31);
      kept[q >> 5] ^= BitWord{1} << (q & 31);
    }
    __syncthreads();
  }
};

// E of the block's row where the kernel works on it.
__device__ inline double* TakeProduct(double* row_product, int64_t stride, bool shared) {
  if (!shared) return row_product;
  double* product = DynamicShared<double>();
  for (int64_t col = threadIdx.x; col < stride; col += kBlockThreads) {
    product[col] = row_product[col];
  }
  __syncthreads();
  return product;
}

__device__ inline void ReturnProduct(const double* product, double* row_product, int64_t stride,
                                     bool shared) {
  if (!shared) return;
  for (int64_t col = threadIdx.x; col < stride; col += kBlockThreads) {
    row_product[col] = product[col];
  }
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_ROW_CUH_
