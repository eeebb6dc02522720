#include "core/src/cuda/linalg/raw_value.h"
#include "core/src/cuda/select/salient.h"
#include "core/src/cuda/select/select_scores.cuh"

namespace sparsefw::cuda {
namespace {

__device__ float Score(const SalientWeights& salient, int64_t row, int64_t col) {
  const RawMatrix& weights = salient.weights;
  const double weight = RawValue(weights.data, weights.dtype, row * weights.cols + col);
  const double share = salient.row == nullptr ? 1.0 : salient.row[row] + salient.column[col];
  return static_cast<float>(fabs(weight) * share * salient.factor[col]);
}

// A source as core/src/cuda/iteration/sources.cuh describes it; nothing is summed up.
struct SalientSource {
  static constexpr int kKeyBits = kScoreKeyBits<float>;
  using Kept = float;

  SalientWeights salient;
  const BitWord* among;
  int64_t stride;

  __device__ bool Stopped() const { return false; }
  __device__ void Move(int64_t first, int64_t step, int64_t end, Kept (&kept)[kAhead],
                       double (&parts)[kAhead]) const {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t i = first + k * step;
      kept[k] = i < end ? At(i) : -1.0F;
      parts[k] = 0;
    }
  }
  __device__ Kept At(int64_t i) const {
    const int64_t row = i / stride;
    const int64_t col = i - row * stride;
    if (col >= salient.weights.cols) return -1;
    return among == nullptr || BitOf(among, i) ? Score(salient, row, col) : -1;
  }
  // A positive number's bits follow its order; 0 is selected too, where there is nothing larger.
  __device__ static uint64_t Key(Kept score) {
    return score >= 0 ? static_cast<uint64_t>(__float_as_uint(score)) + 1 : 0;
  }
  __device__ double Part(int64_t, Kept, bool) const { return 0; }
};

// One block a row.
__global__ void SaliencyKernel(SalientWeights salient, int64_t stride, float* scores) {
  const int64_t row = blockIdx.x;
  for (int64_t col = threadIdx.x; col < salient.weights.cols; col += kBlockThreads) {
    scores[row * stride + col] = Score(salient, row, col);
  }
}

}  // namespace

CudaError LaunchSaliency(const SalientWeights& salient, float* scores, cudaStream_t stream) {
  return Launch(SaliencyKernel, {.blocks_x = salient.weights.rows}, stream, salient,
                StrideOf(salient.weights.cols), scores);
}

CudaError LaunchSelectSalient(const SelectionSpace& space, const SalientWeights& salient,
                              const BitWord* among, const Groups& groups, BitWord* bits,
                              cudaStream_t stream) {
  const SalientSource source = {salient, among, StrideOf(space.cols)};
  return SelectBySource(source, space, groups, bits, stream);
}

}  // namespace sparsefw::cuda
