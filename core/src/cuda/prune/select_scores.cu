#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/iteration/sources.cuh"
#include "core/src/cuda/prune/select_scores.h"
#include "core/src/cuda/select/select_groups.cuh"
#include "core/src/cuda/select/select_whole.cuh"

namespace sparsefw::cuda {
namespace {

// A source as core/src/cuda/iteration/sources.cuh describes it; nothing is summed up.
struct MagnitudeSource {
  static constexpr int kKeyBits = kScoreKeyBits<double>;
  using Kept = double;

  const double* scores;

  __device__ bool Stopped() const { return false; }
  __device__ void Move(int64_t first, int64_t step, int64_t end, Kept (&kept)[kAhead],
                       double (&parts)[kAhead]) const {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t i = first + k * step;
      kept[k] = i < end ? scores[i] : -1.0;
      parts[k] = 0;
    }
  }
  __device__ Kept At(int64_t i) const { return scores[i]; }
  // A positive number's bits follow its order; 0 is selected too, where there is nothing larger.
  __device__ static uint64_t Key(Kept score) {
    return score < 0 ? 0 : static_cast<uint64_t>(__double_as_longlong(score + 0.0)) + 1;
  }
  __device__ double Part(int64_t, Kept, bool) const { return 0; }
};

// The scratch, in this order: selection, histogram and ticket, no fixed bits, sums of blocks, which
// nobody reads.
constexpr int64_t kHistogram = sizeof(Selection);
constexpr int64_t kFixed = kHistogram + int64_t{sizeof(unsigned)} * (kDigitBins + 2);
static_assert(kHistogram % 8 == 0 && kFixed % 8 == 0);

int64_t BitBytes(int64_t rows, int64_t cols) { return rows * StrideOf(cols) / 8; }

}  // namespace

int64_t SelectionBytes(int64_t rows, int64_t cols) {
  const int64_t blocks = MarkBlocks(rows * StrideOf(cols));
  return kFixed + BitBytes(rows, cols) + int64_t{sizeof(double)} * (rows > blocks ? rows : blocks);
}

CudaError LaunchSelectLargest(const ScoreMatrix& matrix, const Groups& groups, BitWord* bits,
                              cudaStream_t stream) {
  IterateView<double> view;
  view.rows = matrix.rows;
  view.cols = matrix.cols;
  view.stride = StrideOf(matrix.cols);
  view.groups = groups;
  view.shared_bytes = matrix.shared_bytes;
  view.scratch.selection = reinterpret_cast<Selection*>(matrix.scratch);
  view.scratch.histogram = reinterpret_cast<unsigned*>(matrix.scratch + kHistogram);
  view.scratch.ticket = view.scratch.histogram + kDigitBins;
  view.fixed = reinterpret_cast<const BitWord*>(matrix.scratch + kFixed);
  view.partial =
      reinterpret_cast<double*>(matrix.scratch + kFixed + BitBytes(view.rows, view.cols));
  const MagnitudeSource source = {matrix.scores};
  if (!groups.whole_matrix) return SelectInGroups(source, view, nullptr, bits, stream);
  return SelectWhole(source, view, groups.total_kept, false, nullptr, bits, stream);
}

}  // namespace sparsefw::cuda
