#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/prune/prune_kernels.h"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {
namespace {

constexpr int kLanes = 32;
constexpr int kPieces = kTileColumns / kLanes;  // columns of a lane, kLanes apart
constexpr int kSweepThreads = 512;              // a warp a row
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__global__ void ScoresKernel(SweepTile block, double* scores) {
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x;
  const int64_t padded = (block.width + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  if (col >= padded) return;
  const int64_t row = blockIdx.x;
  const int64_t column = block.first + col;
  scores[row * padded + col] = col < block.width
                                   ? fabs(block.weights[row * block.stride + column]) /
                                         block.factor[column * (block.stride + 1)]
                                   : -1.0;
}

// The upper triangle of the tile's U without gaps: row j from column j on.
__device__ int RowStart(int j) { return j * kTileColumns - j * (j + 1) / 2; }
constexpr int kTriangle = kTileColumns * (kTileColumns + 1) / 2;

__device__ void LoadTriangle(const SweepTile& tile, double* triangle) {
  const double* from = tile.factor + tile.first * (tile.stride + 1);
  for (int i = static_cast<int>(threadIdx.x); i < kTileColumns * kTileColumns; i += kSweepThreads) {
    const int row = i / kTileColumns;
    const int col = i % kTileColumns;
    if (col < row) continue;
    const bool inside = row < tile.width && col < tile.width;
    triangle[RowStart(row) + col] = inside ? from[row * tile.stride + col] : 1.0;
  }
}

// All but the group - keep lowest scores of the columns [first, first + group); of equal scores
// the lower column is pruned.
__device__ void ChooseGroup(const SweepTile& tile, const double* triangle,
                            const double (&weights)[kPieces], int first,
                            unsigned (&kept)[kPieces]) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  double scores[kPieces];
  int lower[kPieces] = {};
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int column = p * kLanes + lane;
    scores[p] = fabs(weights[p]) / triangle[RowStart(column) + column];
  }
#pragma unroll
  for (int from = 0; from < kPieces; ++from) {
    const int begin = max(first, from * kLanes);
    const int end = min(first + tile.group, (from + 1) * kLanes);
    for (int column = begin; column < end; ++column) {
      const double score = __shfl_sync(kAllLanes, scores[from], column % kLanes);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const bool before = column < p * kLanes + lane;
        lower[p] += score < scores[p] || (score == scores[p] && before) ? 1 : 0;
      }
    }
  }
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int column = p * kLanes + lane;
    const bool inside = column >= first && column < first + tile.group;
    kept[p] |= __ballot_sync(kAllLanes, inside && lower[p] >= tile.group - tile.keep);
  }
}

// The bits of a row's tile into the mask, which may begin anywhere in a word.
__device__ void StoreBits(const SweepTile& tile, int64_t row, const unsigned (&kept)[kPieces]) {
  BitWord* words = tile.mask + row * (tile.stride / 32) + tile.first / 32;
  const int shift = static_cast<int>(tile.first % 32);
  for (int p = 0; p < kPieces; ++p) {
    const BitWord low = kept[p] << shift;
    const BitWord high = shift == 0 ? 0 : kept[p] >> (32 - shift);
    if (low != 0) words[p] |= low;
    if (high != 0) words[p + 1] |= high;
  }
}

template <bool kGroups>
__global__ void __launch_bounds__(kSweepThreads, 2) SweepKernel(SweepTile tile) {
  double* triangle = DynamicShared<double>();
  LoadTriangle(tile, triangle);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * (kSweepThreads / kLanes) + threadIdx.x / kLanes;
  if (row >= tile.rows) return;
  double* from = tile.weights + row * tile.stride + tile.first;
  double weights[kPieces];
  double errors[kPieces] = {};
  unsigned kept[kPieces] = {};
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int column = p * kLanes + lane;
    weights[p] = column < tile.width ? from[column] : 0.0;
    if (!kGroups && p * kLanes < tile.width) kept[p] = tile.chosen[row * tile.chosen_words + p];
  }
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int count = min(static_cast<int>(tile.width) - p * kLanes, kLanes);
    for (int place = 0; place < count; ++place) {
      const int j = p * kLanes + place;
      if (kGroups && j % tile.group == 0) ChooseGroup(tile, triangle, weights, j, kept);
      if ((kept[p] >> place & 1U) != 0) continue;
      const double* factor = triangle + RowStart(j);
      const double error = __shfl_sync(kAllLanes, weights[p], place) / factor[j];
      if (lane > place) weights[p] -= error * factor[p * kLanes + lane];
#pragma unroll
      for (int later = p + 1; later < kPieces; ++later) {
        weights[later] -= error * factor[later * kLanes + lane];
      }
      if (lane == place) {
        weights[p] = 0;
        errors[p] = error;
      }
    }
  }
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int column = p * kLanes + lane;
    if (column < tile.width) from[column] = weights[p];
    tile.errors[row * kTileColumns + column] = errors[p];
  }
  if (lane == 0) StoreBits(tile, row, kept);
}

}  // namespace

CudaError LaunchSweepTile(const SweepTile& tile, cudaStream_t stream) {
  constexpr int64_t kRows = kSweepThreads / kLanes;
  const LaunchShape shape = {.blocks_x = (tile.rows + kRows - 1) / kRows,
                             .threads = kSweepThreads,
                             .shared_bytes = kTriangle * sizeof(double)};
  return tile.chosen != nullptr ? Launch(SweepKernel<false>, shape, stream, tile)
                                : Launch(SweepKernel<true>, shape, stream, tile);
}

CudaError LaunchSweepScores(const SweepTile& block, double* scores, cudaStream_t stream) {
  const int64_t blocks = (StrideOf(block.width) + kBlockThreads - 1) / kBlockThreads;
  return Launch(ScoresKernel, {.blocks_x = block.rows, .blocks_y = blocks}, stream, block, scores);
}

}  // namespace sparsefw::cuda
