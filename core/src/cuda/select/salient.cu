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
