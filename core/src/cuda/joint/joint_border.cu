// Admitted columns N into the tableau. With s their columns of H_CC - Y^T Y, C all positions, and
// s_K the part of it in the rows inside:
//
//   A_CN = s_CN - A_CK s_KN outside,  -A_KK s_KN inside;   A_NN = s_NN + s_KN^T A_KK s_KN
//   target_N = (b - Y^T y)_N - s_KN^T w_K
#include "core/src/cuda/joint/joint_batch.h"
#include "core/src/cuda/joint/joint_tile.cuh"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/joint/joint_rules.h"

namespace sparsefw::cuda {
namespace {

// Their columns of the layer and their places. A block a row.
template <typename Real>
__global__ void EnterKernel(JointBatch<Real> batch, int64_t first) {
  const int64_t index = blockIdx.x;
  const int64_t n = threadIdx.x;
  if (n >= batch.rows[index].entering) return;
  const int column = batch.admitted[index * kRoomOfRow + n];
  batch.columns[index * batch.sizes.width() + batch.sizes.eliminated() + first + n] = column;
  batch.places[index * batch.stride + column] = static_cast<int>(first + n);
}

// s, into the rows of N; a block a tile of columns.
template <typename Real>
__global__ void __launch_bounds__(kTileThreads)
    SchurKernel(JointBatch<Real> batch, int64_t first, int64_t most) {
  const JointSizes& sizes = batch.sizes;
  const int64_t index = blockIdx.y;
  if (batch.rows[index].entering == 0) return;
  const int64_t eliminated = sizes.eliminated();
  const Real* factor = batch.factor + index * eliminated * sizes.width();
  const int64_t j0 = static_cast<int64_t>(blockIdx.x) * kTileCols;
  // K's columns of the factor are not those of Z, which has R_K^-T there.
  const auto columns_from = [&](int64_t position) {
    return factor + (position < sizes.kept ? sizes.fixed : eliminated) + position;
  };
  Real sums[8][8];
  MultiplyTile<Real>({.left = factor + eliminated + first,
                      .right = columns_from(j0),
                      .right_half = columns_from(j0 + kTileCols / 2),
                      .left_stride = sizes.width(),
                      .right_stride = sizes.width(),
                      .depth = sizes.fixed},
                     DynamicShared<Real>(), sums);
  Real* tableau = batch.tableau + index * sizes.positions * sizes.span;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int64_t row = first + TileRow(i);
    if (TileRow(i) >= most) continue;
    const int column = ColumnAt(batch, index, row);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t col = j0 + TileCol(j);
      if (col >= sizes.end) continue;
      const Real entry = col == sizes.target
                             ? ProductOf(batch, index, column)
                             : GramOf(batch, column, ColumnAt(batch, index, col), row == col);
      tableau[row * sizes.span + col] = entry - sums[i][j];
    }
  }
}

// s_K with its rows as the sum's index, 0 outside; and the tableau's diagonal. A block a row.
template <typename Real>
__global__ void InsidePartKernel(JointBatch<Real> batch, int64_t first, int64_t most) {
  const JointSizes& sizes = batch.sizes;
  const int64_t index = blockIdx.x;
  if (batch.rows[index].entering == 0) return;
  Real* tableau = batch.tableau + index * sizes.positions * sizes.span;
  Real* part = batch.entering + index * sizes.positions * kPanelRows;
  const unsigned char* inside = batch.inside + index * sizes.span;
  for (int64_t t = threadIdx.x; t < sizes.positions; t += kBlockThreads) {
    const bool there = t < first && inside[t] != 0;
    for (int64_t n = 0; n < kPanelRows; ++n) {
      part[t * kPanelRows + n] =
          there && n < most ? tableau[(first + n) * sizes.span + t] : Real{0};
    }
    if (there) tableau[t * sizes.span + t] = batch.diagonals[index * sizes.span + t];
  }
}

// A_CN, C the positions before N; or, with kOwn, A_NN. A block a tile of columns.
template <typename Real, bool kOwn>
__global__ void __launch_bounds__(kTileThreads)
    BorderKernel(JointBatch<Real> batch, int64_t first, int64_t most) {
  const JointSizes& sizes = batch.sizes;
  const int64_t index = blockIdx.y;
  if (batch.rows[index].entering == 0) return;
  Real* tableau = batch.tableau + index * sizes.positions * sizes.span;
  const unsigned char* inside = batch.inside + index * sizes.span;
  const int64_t j0 = kOwn ? first : static_cast<int64_t>(blockIdx.x) * kTileCols;
  constexpr int kDepth = kTileDepth<Real>;
  Real sums[8][8];
  MultiplyTile<Real>({.left = batch.entering + index * sizes.positions * kPanelRows,
                      .right = tableau + j0,
                      .right_half = tableau + j0 + kTileCols / 2,
                      .left_stride = kPanelRows,
                      .right_stride = sizes.span,
                      .depth = (first + kDepth - 1) / kDepth * kDepth},
                     DynamicShared<Real>(), sums);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t n = TileRow(i);
      const int64_t col = j0 + TileCol(j);
      if (n >= most || (kOwn ? col < first + n || col >= first + most : col >= first)) continue;
      if (col == sizes.target) continue;
      Real* at = tableau + (first + n) * sizes.span + col;
      const Real entry = (!kOwn && inside[col] != 0 ? Real{0} : *at) - sums[i][j];
      *at = entry;
      tableau[col * sizes.span + first + n] = entry;
    }
  }
}

// What is known of them beside the tableau; the row goes on. A block a row.
template <typename Real>
__global__ void FinishBorderKernel(JointBatch<Real> batch, int64_t first) {
  const JointSizes& sizes = batch.sizes;
  const int64_t index = blockIdx.x;
  const int entering = batch.rows[index].entering;
  if (entering == 0) return;
  const Real* tableau = batch.tableau + index * sizes.positions * sizes.span;
  const Real* part = batch.entering + index * sizes.positions * kPanelRows;
  const int64_t offset = index * sizes.span;
  for (int n = 0; n < entering; ++n) {
    double sum = 0;
    for (int64_t t = threadIdx.x; t < first; t += kBlockThreads) {
      sum += static_cast<double>(part[t * kPanelRows + n]) *
             static_cast<double>(batch.targets[offset + t]);
    }
    sum = BlockSum(sum);
    if (threadIdx.x != 0) continue;
    const int64_t row = first + n;
    const int column = ColumnAt(batch, index, row);
    batch.targets[offset + row] =
        static_cast<Real>(static_cast<double>(tableau[row * sizes.span + sizes.target]) - sum);
    batch.diagonals[offset + row] = tableau[row * sizes.span + row];
    batch.floors[offset + row] = kPivotFloor<Real> * GramOf(batch, column, column, true);
  }
  if (threadIdx.x != 0) return;
  batch.rows[index].done = 0;
  batch.rows[index].pending = 0;
}

}  // namespace

template <typename Real>
CudaError LaunchBorder(const JointBatch<Real>& batch, int64_t first, int64_t most,
                       cudaStream_t stream) {
  const JointSizes& sizes = batch.sizes;
  SPARSEFW_RETURN_IF_CUDA_ERROR(LaunchFlush(batch, stream));
  SPARSEFW_RETURN_IF_CUDA_ERROR(
      Launch(EnterKernel<Real>, {.blocks_x = batch.count}, stream, batch, first));
  for (int64_t panel = 0; panel < sizes.fixed; panel += kPanelRows) {
    SPARSEFW_RETURN_IF_CUDA_ERROR(LaunchPanel(
        batch, panel, {.first = first, .end = first + most, .of_z = 1, .border = true}, stream));
  }
  LaunchShape tiles = TileShape(batch, TilesOf(sizes));
  SPARSEFW_RETURN_IF_CUDA_ERROR(Launch(SchurKernel<Real>, tiles, stream, batch, first, most));
  SPARSEFW_RETURN_IF_CUDA_ERROR(
      Launch(InsidePartKernel<Real>, {.blocks_x = batch.count}, stream, batch, first, most));
  tiles.blocks_x = (first + kTileCols - 1) / kTileCols;
  SPARSEFW_RETURN_IF_CUDA_ERROR(
      Launch(BorderKernel<Real, false>, tiles, stream, batch, first, most));
  tiles.blocks_x = 1;
  SPARSEFW_RETURN_IF_CUDA_ERROR(
      Launch(BorderKernel<Real, true>, tiles, stream, batch, first, most));
  return Launch(FinishBorderKernel<Real>, {.blocks_x = batch.count}, stream, batch, first);
}

template CudaError LaunchBorder(const JointBatch<float>&, int64_t, int64_t, cudaStream_t);
template CudaError LaunchBorder(const JointBatch<double>&, int64_t, int64_t, cudaStream_t);

}  // namespace sparsefw::cuda
