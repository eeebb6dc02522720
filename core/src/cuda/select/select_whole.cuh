// Selection of the largest keys of a whole matrix: radix selection from the top, one pass over the
// matrix for every digit of the key, then of the index. Where a window was guessed right
// (select_window.cuh), the passes look at the entries inside it alone.
#ifndef SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_WHOLE_CUH_
#define SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_WHOLE_CUH_

#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {

struct DigitArgs {
  int64_t entries = 0;  // of the padded matrix
  int64_t wanted = 0;
  bool windowed = false;     // the selection has begun: Selection::within has a meaning
  bool first = false;        // the first digit of the key
  bool index_digit = false;  // a digit of the index, all of the key known
  DigitPlace place = {};
  SelectionScratch scratch;
};

// The bin in which the threshold lies, by the block that counted last. Thread 0
// has the highest bins, so that a scan counts what is above.
__device__ inline void FinishDigit(const DigitArgs& args, bool begins) {
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
    if (begins) BeginSelection(selection, args.wanted, total);
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
                           int64_t i, unsigned* counts) {
  const uint64_t key = Source::Key(source.At(i));
  if (args.index_digit) {
    const auto index = static_cast<uint64_t>(i);
    if (IndexAgrees(selection, key, index, args.place)) {
      atomicAdd(&counts[DigitAt(index, args.place)], 1U);
    }
  } else if (KeyAgrees(selection, key, args.place)) {
    atomicAdd(&counts[DigitAt(key, args.place)], 1U);
  }
}

// Those of the entries that the selection looks at.
template <typename Source>
__device__ void CountEntries(const Source& source, const DigitArgs& args,
                             const Selection& selection, bool within, unsigned* counts) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kBlockThreads;
  if (!within) {
    for (int64_t i = thread; i < args.entries; i += threads) {
      CountEntry(source, args, selection, i, counts);
    }
    return;
  }
  for (int64_t word = thread; word < args.entries / 32; word += threads) {
    BitWord inside = args.scratch.inside[word];
    for (; inside != 0; inside &= inside - 1) {
      const int bit = __ffs(static_cast<int>(inside)) - 1;
      CountEntry(source, args, selection, word * 32 + bit, counts);
    }
  }
}

// Blocks on a multiprocessor at once. Eight leave 32 registers to a thread: sm_100 needs more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
inline constexpr int kDigitBlocks = 6;
#else
inline constexpr int kDigitBlocks = 8;
#endif

template <typename Source>
__global__ void __launch_bounds__(kBlockThreads, kDigitBlocks)
    DigitKernel(Source source, DigitArgs args) {
  if (source.Stopped()) return;
  Selection selection = *args.scratch.selection;
  const bool within = args.windowed && selection.within != 0;
  const bool begins = args.first && !within;
  if (begins) selection = Selection{};
  if (selection.done != 0) return;
  __shared__ unsigned counts[kDigitBins];
  __shared__ bool last;
  for (int bin = static_cast<int>(threadIdx.x); bin < kDigitBins; bin += kBlockThreads) {
    counts[bin] = 0;
  }
  __syncthreads();
  CountEntries(source, args, selection, within, counts);
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
  FinishDigit(args, begins);
}

struct MarkArgs {
  int64_t words = 0;  // of the padded matrix
  bool windowed = false;
  const Selection* selection = nullptr;
  const BitWord* inside = nullptr;
  const BitWord* also = nullptr;  // null, or what is added to the bits
  BitWord* bits = nullptr;
  double* partial = nullptr;  // [MarkBlocks]
};

// A word whose entries above the window are marked: those inside it, too.
template <typename Source>
__device__ double MarkInside(const Source& source, const MarkArgs& args, const Threshold& threshold,
                             int64_t word) {
  BitWord inside = args.inside[word];
  if (inside == 0) return 0;
  double sum = 0;
  BitWord bits = args.bits[word];
  for (; inside != 0; inside &= inside - 1) {
    const int bit = __ffs(static_cast<int>(inside)) - 1;
    const int64_t i = word * 32 + bit;
    const auto kept = source.At(i);
    const bool selected = threshold.Selects(Source::Key(kept), static_cast<uint64_t>(i));
    if (selected) bits |= BitWord{1} << bit;
    sum += source.Part(i, kept, selected);
  }
  args.bits[word] = bits;
  return sum;
}

// A word of a warp, a bit of every thread.
template <typename Source>
__device__ double MarkWord(const Source& source, const MarkArgs& args, const Threshold& threshold,
                           int64_t word) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t i = word * 32 + lane;
  const auto kept = source.At(i);
  const bool selected = threshold.Selects(Source::Key(kept), static_cast<uint64_t>(i));
  const BitWord bits = __ballot_sync(0xFFFFFFFFU, selected);
  if (lane == 0) args.bits[word] = args.also == nullptr ? bits : bits | args.also[word];
  return source.Part(i, kept, selected);
}

// bits = what is selected; partial[block] = the parts of kWordsOfBlock words, to
// which the window's pass has contributed where it was right.
template <typename Source>
__global__ void __launch_bounds__(kBlockThreads) MarkKernel(Source source, MarkArgs args) {
  if (source.Stopped()) return;
  const Threshold threshold = args.selection->threshold;
  const bool within = args.windowed && args.selection->within != 0;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWordsOfBlock;
  double sum = 0;
  if (within) {
    const int64_t word = first + threadIdx.x;
    if (word < args.words) sum = MarkInside(source, args, threshold, word);
  } else {
    for (int64_t w = threadIdx.x / 32; w < kWordsOfBlock; w += kBlockThreads / 32) {
      if (first + w < args.words) sum += MarkWord(source, args, threshold, first + w);
    }
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) args.partial[blockIdx.x] = within ? args.partial[blockIdx.x] + sum : sum;
}

// Enough blocks to fill any device, and enough work for each: it clears and adds up a histogram.
inline int64_t DigitBlocks(int64_t entries) {
  constexpr int64_t kMostBlocks = 1024;
  constexpr int64_t kLeastEntries = 4096;
  const int64_t blocks = (entries + kLeastEntries - 1) / kLeastEntries;
  return blocks < kMostBlocks ? blocks : kMostBlocks;
}

// Selects `wanted` keys (fewer where fewer are not 0). `windowed`: a window's pass has come before.
template <typename Source, typename Real>
CudaError SelectWhole(const Source& source, const IterateView<Real>& it, int64_t wanted,
                      bool windowed, const BitWord* also, BitWord* bits, cudaStream_t stream) {
  const int64_t entries = it.rows * it.stride;
  const LaunchShape shape = {.blocks_x = DigitBlocks(entries)};
  DigitArgs args = {
      .entries = entries, .wanted = wanted, .windowed = windowed, .scratch = it.scratch};
  const int index_bits = IndexBits(entries);
  const int key_digits = DigitsOf(Source::kKeyBits, kDigitWidth);
  for (int digit = 0; digit < key_digits + DigitsOf(index_bits, kDigitWidth); ++digit) {
    args.first = digit == 0;
    args.index_digit = digit >= key_digits;
    args.place = args.index_digit ? PlaceOf(digit - key_digits, index_bits, kDigitWidth)
                                  : PlaceOf(digit, Source::kKeyBits, kDigitWidth);
    SPARSEFW_RETURN_IF_CUDA_ERROR(Launch(DigitKernel<Source>, shape, stream, source, args));
  }
  const MarkArgs mark = {.words = entries / 32,
                         .windowed = windowed,
                         .selection = it.scratch.selection,
                         .inside = it.scratch.inside,
                         .also = also,
                         .bits = bits,
                         .partial = it.partial};
  return Launch(MarkKernel<Source>, {.blocks_x = MarkBlocks(entries)}, stream, source, mark);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_WHOLE_CUH_
