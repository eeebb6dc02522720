// Selection of the largest keys of a whole matrix: radix selection from the
// top, one pass over the matrix for every digit of the key, then of the index.
#ifndef SPARSEFW_CORE_SRC_CUDA_SELECT_WHOLE_CUH_
#define SPARSEFW_CORE_SRC_CUDA_SELECT_WHOLE_CUH_

#include "core/src/cuda/iterate.h"
#include "core/src/cuda/launch.cuh"
#include "core/src/cuda/reduce.cuh"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

struct DigitArgs {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t wanted = 0;
  bool first = false;        // the first digit of the key
  bool index_digit = false;  // a digit of the index, all of the key known
  DigitPlace place = {};
  SelectionScratch scratch;
};

// The bin in which the threshold lies, by the block that counted last. Thread 0
// has the highest bins, so that a scan counts what is above.
__device__ inline void FinishDigit(const DigitArgs& args) {
  constexpr int kBinsOfThread = kDigitBins / kBlockThreads;
  __shared__ Selection selection;
  volatile unsigned* histogram = args.scratch.histogram;  // written by other blocks
  const int highest = kDigitBins - 1 - static_cast<int>(threadIdx.x) * kBinsOfThread;
  int64_t own = 0;
  for (int b = 0; b < kBinsOfThread; ++b) own += histogram[highest - b];
  int64_t total = 0;
  int64_t above = BlockExclusiveScan(own, &total);
  if (threadIdx.x == 0) {
    selection = *args.scratch.selection;
    if (args.first) BeginSelection(selection, args.wanted, total);
  }
  __syncthreads();
  const int64_t needed = selection.needed;
  const bool open = selection.done == 0;
  __syncthreads();
  if (open && above < needed && needed <= above + own) {
    int bin = highest;
    while (above + histogram[bin] < needed) above += histogram[bin--];
    EnterBin(selection, args.index_digit, static_cast<uint32_t>(bin), args.place, above,
             histogram[bin]);
  }
  __syncthreads();
  for (int b = 0; b < kBinsOfThread; ++b) histogram[highest - b] = 0;
  if (threadIdx.x == 0) {
    *args.scratch.selection = selection;
    *args.scratch.ticket = 0;
  }
}

template <typename Source>
__device__ void CountEntry(const Source& source, const DigitArgs& args, const Selection& selection,
                           int64_t row, int64_t col, unsigned* counts) {
  if (args.first) source.Prepare(row, col);
  const uint64_t key = source.Key(row, col);
  if (args.index_digit) {
    const uint64_t index = static_cast<uint64_t>(row * args.cols + col);
    if (IndexAgrees(selection, key, index, args.place)) {
      atomicAdd(&counts[DigitAt(index, args.place)], 1U);
    }
  } else if (args.first ? key != 0 : KeyAgrees(selection, key, args.place)) {
    atomicAdd(&counts[DigitAt(key, args.place)], 1U);
  }
}

template <typename Source>
__global__ void __launch_bounds__(kBlockThreads) DigitKernel(Source source, DigitArgs args) {
  if (source.Stopped()) return;
  const Selection selection = *args.scratch.selection;
  if (!args.first && selection.done != 0) return;
  __shared__ unsigned counts[kDigitBins];
  __shared__ bool last;
  for (int bin = static_cast<int>(threadIdx.x); bin < kDigitBins; bin += kBlockThreads) {
    counts[bin] = 0;
  }
  __syncthreads();
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) {
    for (int64_t col = threadIdx.x; col < args.cols; col += kBlockThreads) {
      CountEntry(source, args, selection, row, col, counts);
    }
  }
  __syncthreads();
  for (int bin = static_cast<int>(threadIdx.x); bin < kDigitBins; bin += kBlockThreads) {
    if (counts[bin] != 0) atomicAdd(&args.scratch.histogram[bin], counts[bin]);
  }
  __threadfence();  // the counts come before the ticket
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(args.scratch.ticket, 1U) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  FinishDigit(args);
}

// bits = what is selected, with `also` where it is not null; partial[block] =
// the parts of kColumnsOfBlock columns of a row.
template <typename Source>
__global__ void __launch_bounds__(kBlockThreads)
    MarkKernel(Source source, int64_t cols, int64_t stride, const Selection* selection,
               const BitWord* also, BitWord* bits, double* partial) {
  if (source.Stopped()) return;
  const Threshold threshold = selection->threshold;
  const int64_t row = blockIdx.x;
  double sum = 0;
  for (int c = 0; c < kColumnsOfBlock / kBlockThreads; ++c) {
    const int64_t col =
        static_cast<int64_t>(blockIdx.y) * kColumnsOfBlock + c * kBlockThreads + threadIdx.x;
    // Warps are inside the padded row or outside as a whole.
    if (col >= stride) continue;
    bool selected = false;
    if (col < cols) {
      selected = threshold.Selects(source.Key(row, col), static_cast<uint64_t>(row * cols + col));
      sum += source.Part(row, col, selected);
    }
    const BitWord word = __ballot_sync(0xFFFFFFFFU, selected);
    if (threadIdx.x % 32 == 0) {
      const int64_t index = row * (stride / 32) + col / 32;
      bits[index] = also == nullptr ? word : word | also[index];
    }
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) partial[row * gridDim.y + blockIdx.y] = sum;
}

// Enough blocks to fill any device, and enough work for each: it clears and adds
// up a histogram.
inline int64_t DigitBlocks(int64_t rows, int64_t cols) {
  constexpr int64_t kMostBlocks = 2048;
  constexpr int64_t kLeastElements = 4096;
  int64_t blocks = (rows * cols + kLeastElements - 1) / kLeastElements;
  if (blocks > kMostBlocks) blocks = kMostBlocks;
  return blocks < rows ? blocks : rows;
}

// Selects `wanted` keys (fewer where fewer are not 0).
template <typename Source, typename Real>
absl::Status SelectWhole(const Source& source, const Iterate<Real>& it, int64_t wanted,
                         const BitWord* also, BitWord* bits, cudaStream_t stream) {
  const LaunchShape shape = {.blocks_x = DigitBlocks(it.rows, it.cols)};
  DigitArgs args = {.rows = it.rows, .cols = it.cols, .wanted = wanted, .scratch = it.scratch};
  const int index_bits = IndexBits(it.rows * it.cols);
  const int key_digits = DigitsOf(Source::kKeyBits, kDigitWidth);
  for (int digit = 0; digit < key_digits + DigitsOf(index_bits, kDigitWidth); ++digit) {
    args.first = digit == 0;
    args.index_digit = digit >= key_digits;
    args.place = args.index_digit ? PlaceOf(digit - key_digits, index_bits, kDigitWidth)
                                  : PlaceOf(digit, Source::kKeyBits, kDigitWidth);
    SPARSEFW_RETURN_IF_ERROR(Launch(DigitKernel<Source>, shape, stream, source, args));
  }
  return Launch(MarkKernel<Source>, {.blocks_x = it.rows, .blocks_y = ColumnChunks(it.stride)},
                stream, source, it.cols, it.stride,
                static_cast<const Selection*>(it.scratch.selection), also, bits, it.partial);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SELECT_WHOLE_CUH_
