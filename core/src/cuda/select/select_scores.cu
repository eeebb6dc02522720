#include "core/src/cuda/select/select_scores.cuh"

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

}  // namespace

int64_t SelectionBytes(int64_t rows, int64_t cols) {
  const int64_t blocks = MarkBlocks(rows * StrideOf(cols));
  return kScratchFixed + ScratchBitBytes(rows, cols) +
         int64_t{sizeof(double)} * (rows > blocks ? rows : blocks);
}

CudaError LaunchSelectLargest(const SelectionSpace& space, const double* scores,
                              const Groups& groups, BitWord* bits, cudaStream_t stream) {
  return SelectBySource(MagnitudeSource{scores}, space, groups, bits, stream);
}

}  // namespace sparsefw::cuda
