// Selection by any source of scores, with a scratch of its own.
#ifndef SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_SCORES_CUH_
#define SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_SCORES_CUH_

#include "core/src/cuda/select/select_groups.cuh"
#include "core/src/cuda/select/select_scores.h"
#include "core/src/cuda/select/select_whole.cuh"

namespace sparsefw::cuda {

// The scratch, in this order: selection, histogram and ticket, no fixed bits, sums of blocks, which
// nobody reads.
inline constexpr int64_t kScratchHistogram = sizeof(Selection);
inline constexpr int64_t kScratchFixed =
    kScratchHistogram + int64_t{sizeof(unsigned)} * (kDigitBins + 2);
static_assert(kScratchHistogram % 8 == 0 && kScratchFixed % 8 == 0);

inline int64_t ScratchBitBytes(int64_t rows, int64_t cols) { return rows * StrideOf(cols) / 8; }

__device__ inline uint64_t BitsOf(double value) {
  return static_cast<uint64_t>(__double_as_longlong(value));
}
__device__ inline uint64_t BitsOf(float value) { return __float_as_uint(value); }

// A source as core/src/cuda/iteration/sources.cuh describes it, with nothing that is summed up.
// Scores{}(i) is the score of entry i of the padded matrix, of the type Scores::Real. Those below 0
// and NaN are never selected; 0 is, where there is nothing larger.
template <typename Scores>
struct PlainSource {
  using Kept = typename Scores::Real;
  static constexpr int kKeyBits = kScoreKeyBits<Kept>;

  Scores scores;

  __device__ bool Stopped() const { return false; }
  __device__ void Move(int64_t first, int64_t step, int64_t end, Kept (&kept)[kAhead],
                       double (&parts)[kAhead]) const {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t i = first + k * step;
      kept[k] = i < end ? At(i) : Kept{-1};
      parts[k] = 0;
    }
  }
  __device__ Kept At(int64_t i) const { return scores(i); }
  // A positive number's bits follow its order; 0 of either sign has those of +0.
  __device__ static uint64_t Key(Kept score) {
    return score >= 0 ? BitsOf(score + Kept{0}) + 1 : 0;
  }
  __device__ double Part(int64_t, Kept, bool) const { return 0; }
};

template <typename Scores>
CudaError SelectByScores(const Scores& scores, const SelectionSpace& space, const Groups& groups,
                         BitWord* bits, cudaStream_t stream) {
  const PlainSource<Scores> source = {scores};
  IterateView<double> view;
  view.rows = space.rows;
  view.cols = space.cols;
  view.stride = StrideOf(space.cols);
  view.groups = groups;
  view.shared_bytes = space.shared_bytes;
  view.scratch.selection = reinterpret_cast<Selection*>(space.scratch);
  view.scratch.histogram = reinterpret_cast<unsigned*>(space.scratch + kScratchHistogram);
  view.scratch.ticket = view.scratch.histogram + kDigitBins;
  view.fixed = reinterpret_cast<const BitWord*>(space.scratch + kScratchFixed);
  view.partial = reinterpret_cast<double*>(space.scratch + kScratchFixed +
                                           ScratchBitBytes(view.rows, view.cols));
  if (!groups.whole_matrix) return SelectInGroups(source, view, nullptr, bits, stream);
  return SelectWhole(source, view, groups.total_kept, false, nullptr, bits, stream);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_SCORES_CUH_
