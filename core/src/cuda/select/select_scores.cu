#include "core/src/cuda/select/select_groups.cuh"
#include "core/src/cuda/select/select_scores.h"
#include "core/src/cuda/select/select_whole.cuh"

namespace sparsefw::cuda {
namespace {

// The scratch, in this order: selection, histogram and ticket, no fixed bits, sums of blocks, which
// nobody reads.
constexpr int64_t kScratchHistogram = sizeof(Selection);
constexpr int64_t kScratchFixed = kScratchHistogram + int64_t{sizeof(unsigned)} * (kDigitBins + 2);
static_assert(kScratchHistogram % 8 == 0 && kScratchFixed % 8 == 0);

int64_t ScratchBitBytes(int64_t rows, int64_t cols) { return rows * StrideOf(cols) / 8; }

__device__ uint64_t BitsOf(double value) {
  return static_cast<uint64_t>(__double_as_longlong(value));
}
__device__ uint64_t BitsOf(float value) { return __float_as_uint(value); }

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

struct StoredScores {
  using Real = double;
  const double* scores;

  __device__ double operator()(int64_t i) const { return scores[i]; }
};

__device__ float Score(const SalientWeights& salient, int64_t row, int64_t col) {
  const RawMatrix& weights = salient.weights;
  const double weight = weights.At(row * weights.cols + col);
  const double share = salient.row == nullptr ? 1.0 : salient.row[row] + salient.column[col];
  return static_cast<float>(fabs(weight) * share * salient.factor[col]);
}

struct SalientScores {
  using Real = float;
  SalientWeights salient;
  const BitWord* among;
  int64_t stride;

  __device__ float operator()(int64_t i) const {
    const int64_t row = i / stride;
    const int64_t col = i - row * stride;
    if (col >= salient.weights.cols) return -1;
    return among == nullptr || BitOf(among, i) ? Score(salient, row, col) : -1;
  }
};

// One block a row.
__global__ void SaliencyKernel(SalientWeights salient, int64_t stride, float* scores) {
  const int64_t row = blockIdx.x;
  for (int64_t col = threadIdx.x; col < salient.weights.cols; col += kBlockThreads) {
    scores[row * stride + col] = Score(salient, row, col);
  }
}

}  // namespace

int64_t SelectionBytes(int64_t rows, int64_t cols) {
  const int64_t blocks = MarkBlocks(rows * StrideOf(cols));
  return kScratchFixed + ScratchBitBytes(rows, cols) +
         int64_t{sizeof(double)} * (rows > blocks ? rows : blocks);
}

CudaError LaunchSelectLargest(const SelectionSpace& space, const double* scores,
                              const Groups& groups, BitWord* bits, cudaStream_t stream) {
  return SelectByScores(StoredScores{scores}, space, groups, bits, stream);
}

CudaError LaunchSaliency(const SalientWeights& salient, float* scores, cudaStream_t stream) {
  return Launch(SaliencyKernel, {.blocks_x = salient.weights.rows}, stream, salient,
                StrideOf(salient.weights.cols), scores);
}

CudaError LaunchSelectSalient(const SelectionSpace& space, const SalientWeights& salient,
                              const BitWord* among, const Groups& groups, BitWord* bits,
                              cudaStream_t stream) {
  const SalientScores scores = {salient, among, StrideOf(space.cols)};
  return SelectByScores(scores, space, groups, bits, stream);
}

}  // namespace sparsefw::cuda
