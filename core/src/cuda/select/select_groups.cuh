// Selection of the largest keys of every group of a row: one block a row.
//
// Groups of up to kThreadGroup columns are taken by one thread each; larger
// ones by the block, digit by digit as in select_whole.cuh. What a row's passes
// look at stays in shared memory where it fits, so that they read E, U and W once.
#ifndef SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_GROUPS_CUH_
#define SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_GROUPS_CUH_

#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/iteration/sources.cuh"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {

inline constexpr int64_t kThreadGroup = 64;

// Digits of a selection by one block: as many bins as threads.
inline constexpr int kGroupDigitWidth = 8;
inline constexpr int kGroupBins = 1 << kGroupDigitWidth;
static_assert(kGroupBins == kBlockThreads);

struct GroupArgs {
  int64_t cols = 0;
  int64_t stride = 0;
  int64_t group_cols = 0;
  int64_t capacity = 0;            // of a group, the fixed set included
  int index_bits = 0;              // of a column
  const BitWord* fixed = nullptr;  // [rows, stride / 32]
  const BitWord* also = nullptr;   // null, or what is added to the bits
  BitWord* bits = nullptr;
  double* partial = nullptr;  // [rows]
};

__device__ inline void SetBit(BitWord* words, int64_t col) {
  atomicOr(&words[col / 32], BitWord{1} << (col % 32));
}

// A row's entries as they have been read.
template <typename Source, bool kShared>
struct RowKeys {
  const Source& source;
  int64_t first;                        // entry of column 0
  const typename Source::Kept* shared;  // [cols], with kShared

  __device__ typename Source::Kept At(int64_t col) const {
    if constexpr (kShared) return shared[col];
    return source.At(first + col);
  }
  __device__ uint64_t Key(int64_t col) const { return Source::Key(At(col)); }
};

// The largest key below `last`, one after the other. Cost: picks * group_cols.
template <typename Keys>
__device__ void SelectSmallGroup(const Keys& keys, const GroupArgs& args, int64_t row,
                                 int64_t first, BitWord* selected) {
  const BitWord* fixed = args.fixed + row * (args.stride / 32);
  int64_t picks = args.capacity;
  for (int64_t col = first; col < first + args.group_cols; ++col) {
    if (BitOf(fixed, col)) --picks;
  }
  uint64_t last_key = ~uint64_t{0};
  int64_t last_col = args.cols;
  for (; picks > 0; --picks) {
    uint64_t best_key = 0;
    int64_t best_col = -1;
    for (int64_t col = first; col < first + args.group_cols; ++col) {
      const uint64_t key = keys.Key(col);
      const bool before = key < last_key || (key == last_key && col < last_col);
      if (before && key != 0 && key >= best_key) {
        best_key = key;
        best_col = col;
      }
    }
    if (best_col < 0) return;
    SetBit(selected, best_col);
    last_key = best_key;
    last_col = best_col;
  }
}

// One digit over the columns of a group; every thread calls it. Thread 0 has
// the highest bin, so that a scan counts what is above.
template <typename Keys>
__device__ void CountGroupDigit(const Keys& keys, int64_t first, int64_t end, bool index_digit,
                                const DigitPlace& place, Selection& selection, unsigned* counts) {
  counts[threadIdx.x] = 0;
  __syncthreads();
  for (int64_t col = first + threadIdx.x; col < end; col += kBlockThreads) {
    const uint64_t key = keys.Key(col);
    if (index_digit) {
      if (IndexAgrees(selection, key, static_cast<uint64_t>(col), place)) {
        atomicAdd(&counts[DigitAt(static_cast<uint64_t>(col), place)], 1U);
      }
    } else if (KeyAgrees(selection, key, place)) {
      atomicAdd(&counts[DigitAt(key, place)], 1U);
    }
  }
  __syncthreads();
  const int bin = kGroupBins - 1 - static_cast<int>(threadIdx.x);
  const int64_t own = counts[bin];
  int64_t total = 0;
  const int64_t above = BlockExclusiveScan(own, &total);
  const int64_t needed = selection.needed;
  __syncthreads();
  if (above < needed && needed <= above + own) {
    EnterBin(selection, index_digit, static_cast<uint32_t>(bin), place, above, own);
  }
  __syncthreads();
}

template <typename Keys>
__device__ void SelectLargeGroup(const Keys& keys, int key_bits, const GroupArgs& args, int64_t row,
                                 int64_t first, BitWord* selected) {
  __shared__ unsigned counts[kGroupBins];
  __shared__ Selection selection;
  const BitWord* fixed = args.fixed + row * (args.stride / 32);
  const int64_t end = first + args.group_cols;
  int64_t taken = 0;
  int64_t eligible = 0;
  for (int64_t col = first + threadIdx.x; col < end; col += kBlockThreads) {
    taken += BitOf(fixed, col) ? 1 : 0;
    eligible += keys.Key(col) != 0 ? 1 : 0;
  }
  taken = BlockSum(taken);
  eligible = BlockSum(eligible);
  if (threadIdx.x == 0) BeginSelection(selection, args.capacity - taken, eligible);
  __syncthreads();
  const int key_digits = DigitsOf(key_bits, kGroupDigitWidth);
  const int index_digits = DigitsOf(args.index_bits, kGroupDigitWidth);
  for (int digit = 0; digit < key_digits + index_digits && selection.done == 0; ++digit) {
    const bool index_digit = digit >= key_digits;
    const DigitPlace place = index_digit
                                 ? PlaceOf(digit - key_digits, args.index_bits, kGroupDigitWidth)
                                 : PlaceOf(digit, key_bits, kGroupDigitWidth);
    CountGroupDigit(keys, first, end, index_digit, place, selection, counts);
  }
  const Threshold threshold = selection.threshold;
  for (int64_t col = first + threadIdx.x; col < end; col += kBlockThreads) {
    if (threshold.Selects(keys.Key(col), static_cast<uint64_t>(col))) {
      SetBit(selected, col);
    }
  }
  __syncthreads();
}

// Every group of a row into `selected`, which is 0.
template <typename Keys>
__device__ void SelectGroups(const Keys& keys, int key_bits, const GroupArgs& args, int64_t row,
                             BitWord* selected) {
  if (args.group_cols <= kThreadGroup) {
    for (int64_t group = threadIdx.x; group < args.cols / args.group_cols; group += kBlockThreads) {
      SelectSmallGroup(keys, args, row, group * args.group_cols, selected);
    }
    __syncthreads();
  } else {
    for (int64_t first = 0; first < args.cols; first += args.group_cols) {
      SelectLargeGroup(keys, key_bits, args, row, first, selected);
    }
  }
}

// Blocks of a multiprocessor: where nvcc would spill registers for the fourth, three.
template <typename Source, bool kShared>
inline constexpr int kGroupBlocks = kShared && sizeof(typename Source::Kept) == 4 ? 4 : 3;

template <typename Source, bool kShared>
__global__ void __launch_bounds__(kBlockThreads, (kGroupBlocks<Source, kShared>))
    GroupKernel(Source source, GroupArgs args) {
  using Kept = typename Source::Kept;
  if (source.Stopped()) return;
  // [cols] with kShared, then [stride / 32]
  Kept* shared = DynamicShared<Kept>();
  BitWord* selected = reinterpret_cast<BitWord*>(shared + (kShared ? args.stride : 0));
  const int64_t row = blockIdx.x;
  const int64_t words = args.stride / 32;
  const RowKeys<Source, kShared> keys = {source, row * args.stride, shared};
  for (int64_t word = threadIdx.x; word < words; word += kBlockThreads) selected[word] = 0;
  double sum = 0;
  for (int64_t col = threadIdx.x; col < args.cols; col += kAhead * kBlockThreads) {
    Kept kept[kAhead];
    double parts[kAhead];
    source.Move(keys.first + col, kBlockThreads, keys.first + args.cols, kept, parts);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      sum += parts[k];
      if constexpr (kShared) {
        if (col + k * kBlockThreads < args.cols) shared[col + k * kBlockThreads] = kept[k];
      }
    }
  }
  __syncthreads();
  SelectGroups(keys, Source::kKeyBits, args, row, selected);
  for (int64_t col = threadIdx.x; col < args.cols; col += kBlockThreads) {
    if (!BitOf(selected, col)) continue;
    const Kept kept = keys.At(col);
    sum += source.Part(keys.first + col, kept, true) - source.Part(keys.first + col, kept, false);
  }
  for (int64_t word = threadIdx.x; word < words; word += kBlockThreads) {
    const int64_t index = row * words + word;
    args.bits[index] = args.also == nullptr ? selected[word] : selected[word] | args.also[index];
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) args.partial[row] = sum;
}

template <typename Real>
GroupArgs GroupArgsOf(const IterateView<Real>& it) {
  return {.cols = it.cols,
          .stride = it.stride,
          .group_cols = it.groups.group_cols,
          .capacity = it.groups.capacity,
          .index_bits = IndexBits(it.cols),
          .fixed = it.fixed,
          .bits = it.vertex,
          .partial = it.partial};
}

template <typename Source, typename Real>
CudaError SelectInGroups(const Source& source, const IterateView<Real>& it, const BitWord* also,
                         BitWord* bits, cudaStream_t stream) {
  GroupArgs args = GroupArgsOf(it);
  args.also = also;
  args.bits = bits;
  const int64_t bit_bytes = it.words() * int64_t{sizeof(BitWord)};
  const int64_t row_bytes = it.stride * int64_t{sizeof(typename Source::Kept)};
  if (bit_bytes + row_bytes <= it.shared_bytes) {
    const auto bytes = static_cast<size_t>(bit_bytes + row_bytes);
    return Launch(GroupKernel<Source, true>, {.blocks_x = it.rows, .shared_bytes = bytes}, stream,
                  source, args);
  }
  return Launch(GroupKernel<Source, false>,
                {.blocks_x = it.rows, .shared_bytes = static_cast<size_t>(bit_bytes)}, stream,
                source, args);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_GROUPS_CUH_
