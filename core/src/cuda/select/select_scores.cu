#include "core/src/cuda/select/select_scores.cuh"

namespace sparsefw::cuda {
namespace {

struct StoredScores {
  using Real = double;
  const double* scores;

  __device__ double operator()(int64_t i) const { return scores[i]; }
};

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

}  // namespace sparsefw::cuda
