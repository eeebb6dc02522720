// The pass of every iteration over the whole matrix: it moves E, selects the
// scores above the guessed window and notes those inside it. Reads E, U and W
// and writes E: 16 bytes a weight in float32, and nothing else reads so much
// where the guess is right.
#ifndef SPARSEFW_CORE_SRC_CUDA_SELECT_WINDOW_CUH_
#define SPARSEFW_CORE_SRC_CUDA_SELECT_WINDOW_CUH_

#include "core/src/cuda/iterate.h"
#include "core/src/cuda/launch.cuh"
#include "core/src/cuda/reduce.cuh"
#include "core/src/cuda/score_window.h"
#include "core/src/cuda/sources.cuh"

namespace sparsefw::cuda {

// By the block that counted last.
__device__ inline void FinishWindow(const SelectionScratch& scratch, int64_t wanted) {
  if (threadIdx.x != 0) return;
  volatile unsigned long long* above = &scratch.window->above;  // written by other blocks
  volatile unsigned long long* inside = &scratch.window->inside;
  ScoreWindow window = *scratch.window;
  window.above = *above;
  window.inside = *inside;
  BeginInWindow(*scratch.selection, window, wanted);
  *scratch.ticket = 0;
}

// Words that a warp reads before it writes any: a store would hold back the
// loads that follow.
inline constexpr int kWordsAhead = 4;

// What a thread adds up.
struct WindowSums {
  double parts = 0;
  unsigned long long counts = 0;  // above, and inside times 2^32
};

// kWordsAhead words from `word` on, an entry of each in every thread of a warp.
template <typename Real>
__device__ void ScanWords(const ScoreSource<Real>& source, const WindowBounds<Real>& bounds,
                          int64_t word, int64_t words, WindowSums& sums) {
  const Iterate<Real>& it = source.it;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int count = words - word < kWordsAhead ? static_cast<int>(words - word) : kWordsAhead;
  Real product[kWordsAhead] = {};
  Real vertex_product[kWordsAhead] = {};
  Real weight[kWordsAhead] = {};
  BitWord fixed[kWordsAhead] = {};
#pragma unroll
  for (int k = 0; k < kWordsAhead; ++k) {
    if (k >= count) break;
    const int64_t i = (word + k) * 32 + lane;
    product[k] = it.product[i];
    if (source.moves) vertex_product[k] = it.vertex_product[i];
    weight[k] = it.weights[i];
    fixed[k] = it.fixed[word + k];
  }
#pragma unroll
  for (int k = 0; k < kWordsAhead; ++k) {
    if (k >= count) break;
    const int64_t i = (word + k) * 32 + lane;
    if (source.moves) product[k] = StoreMoved(it, i, product[k], vertex_product[k]);
    const Real score =
        ((fixed[k] >> lane) & 1U) != 0 ? ScoreSource<Real>::kFixed : weight[k] * product[k];
    const bool above = score > bounds.high;
    const bool inside = !above && score > 0 && score >= bounds.low;
    if (!above && !inside && score != ScoreSource<Real>::kFixed) {
      sums.parts += static_cast<double>(weight[k]) * static_cast<double>(product[k]);
    }
    const BitWord above_bits = __ballot_sync(0xFFFFFFFFU, above);
    const BitWord inside_bits = __ballot_sync(0xFFFFFFFFU, inside);
    if (lane == 0) {
      it.vertex[word + k] = above_bits;
      it.scratch.inside[word + k] = inside_bits;
      sums.counts += static_cast<unsigned long long>(__popc(above_bits)) +
                     (static_cast<unsigned long long>(__popc(inside_bits)) << 32);
    }
  }
}

template <typename Real>
__global__ void __launch_bounds__(kBlockThreads)
    WindowKernel(ScoreSource<Real> source, int64_t wanted) {
  if (source.Stopped()) return;
  const Iterate<Real>& it = source.it;
  const WindowBounds<Real> bounds = BoundsOf<Real>(*it.scratch.window);
  const int64_t words = it.rows * it.words();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kWordsOfBlock;
  const int64_t end = begin + kWordsOfBlock < words ? begin + kWordsOfBlock : words;
  WindowSums sums;
  const int64_t warp = threadIdx.x / 32;
  for (int64_t word = begin + warp * kWordsAhead; word < end;
       word += kWordsAhead * (kBlockThreads / 32)) {
    ScanWords(source, bounds, word, words, sums);
  }
  const double parts = BlockSum(sums.parts);
  const unsigned long long counts = BlockSum(sums.counts);
  __shared__ bool last;
  if (threadIdx.x == 0) {
    it.partial[blockIdx.x] = parts;
    atomicAdd(&it.scratch.window->above, counts & 0xFFFFFFFFULL);
    atomicAdd(&it.scratch.window->inside, counts >> 32);
    __threadfence();  // the counts come before the ticket
    last = atomicAdd(it.scratch.ticket, 1U) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  FinishWindow(it.scratch, wanted);
}

template <typename Real>
absl::Status LaunchWindow(const ScoreSource<Real>& source, int64_t wanted, cudaStream_t stream) {
  const int64_t entries = source.it.rows * source.it.stride;
  return Launch(WindowKernel<Real>, {.blocks_x = MarkBlocks(entries)}, stream, source, wanted);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SELECT_WINDOW_CUH_
