// The pass of every iteration over the whole matrix: it moves E, selects the scores above the
// guessed window and notes those inside it. Reads E, U and W and writes E: 16 bytes a weight in
// float32, and nothing else reads so much where the guess is right.
#ifndef SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_WINDOW_CUH_
#define SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_WINDOW_CUH_

#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/iteration/sources.cuh"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/cuda/select/score_window.h"

namespace sparsefw::cuda {

// By the block that counted last.
__device__ inline void FinishWindow(const SelectionScratch& scratch, int64_t wanted) {
  if (threadIdx.x != 0) return;
  volatile unsigned long long* above = &scratch.window->above;  // written by other blocks
  volatile unsigned long long* inside = &scratch.window->inside;
  WindowPass pass = *scratch.window;
  pass.above = *above;
  pass.inside = *inside;
  BeginInWindow(*scratch.selection, pass, wanted);
  *scratch.ticket = 0;
}

// The sums of a thread.
struct WindowSums {
  double parts = 0;
  unsigned long long counts = 0;  // above, and inside times 2^32
};

// kAhead words from `word` on, an entry of each in every thread of a warp.
template <typename Real>
__device__ void ScanWords(const ScoreSource<Real>& source, const WindowBounds<Real>& bounds,
                          int64_t word, int64_t words, WindowSums& sums) {
  const IterateView<Real>& it = source.it;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Real scores[kAhead];
  double parts[kAhead];
  source.Move(word * 32 + lane, 32, words * 32, scores, parts);
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    if (word + k >= words) break;
    const bool above = scores[k] > bounds.high;
    const bool inside = !above && scores[k] > 0 && scores[k] >= bounds.low;
    if (!above && !inside) sums.parts += parts[k];
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
  const IterateView<Real>& it = source.it;
  const WindowBounds<Real> bounds = BoundsOf<Real>(it.scratch.window->window);
  const int64_t words = it.rows * it.words();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kWordsOfBlock;
  const int64_t end = begin + kWordsOfBlock < words ? begin + kWordsOfBlock : words;
  WindowSums sums;
  const int64_t warp = threadIdx.x / 32;
  for (int64_t word = begin + warp * kAhead; word < end; word += kAhead * (kBlockThreads / 32)) {
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
CudaError LaunchWindow(const ScoreSource<Real>& source, int64_t wanted, cudaStream_t stream) {
  const int64_t entries = source.it.rows * source.it.stride;
  return Launch(WindowKernel<Real>, {.blocks_x = MarkBlocks(entries)}, stream, source, wanted);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_WINDOW_CUH_
