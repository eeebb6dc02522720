#include "core/src/cuda/joint/joint_batch.h"
#include "core/src/cuda/joint/joint_tile.cuh"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/joint/joint_rules.h"
#include "core/src/reconstruct/rounded_value.h"

namespace sparsefw::cuda {
namespace {

// The tableau from the factor; a block a tile on or above the diagonal.
template <typename Real>
__global__ void __launch_bounds__(kTileThreads) TableauKernel(JointBatch<Real> batch) {
  const JointSizes& sizes = batch.sizes;
  const int64_t index = blockIdx.y;
  const int64_t tile_cols = TilesOf(sizes);
  const int64_t i0 = blockIdx.x / tile_cols * kTileRows;
  const int64_t j0 = blockIdx.x % tile_cols * kTileCols;
  if (j0 + kTileCols <= i0) return;
  const bool of_kept = i0 < sizes.kept;
  // R_K^-T is lower triangular.
  int64_t top = 0;
  if (of_kept) top = sizes.fixed + (j0 + kTileCols <= sizes.kept && j0 > i0 ? j0 : i0);
  const int64_t eliminated = sizes.eliminated();
  if (i0 >= sizes.room || j0 >= sizes.room) top = eliminated;  // gaps until something is admitted
  const Real* rows = batch.factor + (index * eliminated + top) * sizes.width() + eliminated;
  Real values[8][8];
  MultiplyTile<Real>({.left = rows + i0,
                      .right = rows + j0,
                      .right_half = rows + j0 + kTileCols / 2,
                      .left_stride = sizes.width(),
                      .right_stride = sizes.width(),
                      .depth = eliminated - top},
                     DynamicShared<Real>(), values);
  const int* columns = batch.columns + index * sizes.width() + eliminated;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t row = i0 + TileRow(i);
      const int64_t col = j0 + TileCol(j);
      if (of_kept) {
        if (col < sizes.kept) values[i][j] = -values[i][j];
        continue;
      }
      const Real entry = col == sizes.target
                             ? ProductOf(batch, index, columns[row])
                             : GramOf(batch, columns[row], columns[col], row == col);
      values[i][j] = entry - values[i][j];
    }
  }
  StoreMirrored(values, i0, j0, sizes.positions, sizes.span,
                batch.tableau + index * sizes.positions * sizes.span);
}

// What is known of a row beside its tableau. A block a row.
template <typename Real>
__global__ void BeginRowKernel(JointBatch<Real> batch) {
  const JointSizes& sizes = batch.sizes;
  const int64_t index = blockIdx.x;
  const Real* factor = batch.factor + index * sizes.eliminated() * sizes.width();
  double squares = 0;
  for (int64_t r = threadIdx.x; r < sizes.eliminated(); r += kBlockThreads) {
    const auto y =
        static_cast<double>(factor[r * sizes.width() + sizes.eliminated() + sizes.target]);
    squares += y * y;
  }
  squares = BlockSum(squares);
  if (threadIdx.x == 0) batch.rows[index].loss -= squares;
  const Real* tableau = batch.tableau + index * sizes.positions * sizes.span;
  for (int64_t t = threadIdx.x; t < sizes.span; t += kBlockThreads) {
    const int64_t at = index * sizes.span + t;
    const bool there = t < sizes.end;
    const int column = there ? ColumnAt(batch, index, t) : -1;
    const bool inside = column >= 0 && t < sizes.kept;
    batch.targets[at] = there ? tableau[t * sizes.span + sizes.target] : Real{0};
    batch.diagonals[at] = there ? tableau[t * sizes.span + t] : Real{0};
    batch.inside[at] = inside ? 1 : 0;
    batch.floors[at] = column < 0 || inside
                           ? static_cast<Real>(kInfiniteFloat)
                           : kPivotFloor<Real> * GramOf(batch, column, column, true);
    for (int k = 0; k < kPendingSweeps; ++k) {
      batch.pending[(index * kPendingSweeps + k) * sizes.span + t] = 0;
    }
  }
}

template <typename Real>
__global__ void GainBoundsKernel(const Real* gram, const double* residuals, int64_t cols,
                                 int64_t stride, float* bounds) {
  const int64_t row = blockIdx.x;
  for (int64_t j = threadIdx.x; j < cols; j += kBlockThreads) {
    const double residual = residuals[row * stride + j];
    const auto diagonal = static_cast<double>(gram[j * stride + j]);
    bounds[row * stride + j] =
        diagonal > 0 ? static_cast<float>(residual * residual / diagonal) : 0.0F;
  }
}

template <typename Real>
__global__ void WeightedSquaresKernel(const Real* gram, const Real* weights, int64_t cols,
                                      int64_t stride, double* squares) {
  const int64_t row = blockIdx.x;
  double sum = 0;
  for (int64_t j = threadIdx.x; j < cols; j += kBlockThreads) {
    const auto weight = static_cast<double>(weights[row * stride + j]);
    sum += weight * weight * static_cast<double>(gram[j * stride + j]);
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) squares[row] = sum;
}

int64_t RoundedUp(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

JointSizes JointSizes::For(int64_t fixed, int64_t kept, int64_t outside) {
  JointSizes sizes = {.fixed = RoundedUp(fixed, kPanelRows), .kept = RoundedUp(kept, kPanelRows)};
  sizes.target = sizes.kept + outside;
  sizes.room = RoundedUp(sizes.target + 1, 4);
  sizes.end = sizes.room + kRoomOfBatch;
  sizes.span = RoundedUp(sizes.end + kTileCols, kTileCols);
  sizes.positions = RoundedUp(sizes.end, kPanelRows);
  return sizes;
}

template <typename Real>
CudaError LaunchBuild(const JointBatch<Real>& batch, cudaStream_t stream) {
  const JointSizes& sizes = batch.sizes;
  for (int64_t panel = 0; panel < sizes.eliminated(); panel += kPanelRows) {
    const int64_t square = (sizes.eliminated() - panel + kTileCols - 1) / kTileCols;
    SPARSEFW_RETURN_IF_CUDA_ERROR(LaunchPanel(
        batch, panel, {.square = square, .first = 0, .end = sizes.span, .of_z = TilesOf(sizes)},
        stream));
  }
  const int64_t tiles = sizes.positions / kTileRows * TilesOf(sizes);
  SPARSEFW_RETURN_IF_CUDA_ERROR(
      Launch(TableauKernel<Real>, TileShape(batch, tiles), stream, batch));
  return Launch(BeginRowKernel<Real>, {.blocks_x = batch.count}, stream, batch);
}

template <typename Real>
CudaError LaunchGainBounds(const Real* gram, const double* residuals, int64_t rows, int64_t cols,
                           int64_t stride, float* bounds, cudaStream_t stream) {
  return Launch(GainBoundsKernel<Real>, {.blocks_x = rows}, stream, gram, residuals, cols, stride,
                bounds);
}

template <typename Real>
CudaError LaunchWeightedSquares(const Real* gram, const Real* weights, int64_t rows, int64_t cols,
                                int64_t stride, double* squares, cudaStream_t stream) {
  return Launch(WeightedSquaresKernel<Real>, {.blocks_x = rows}, stream, gram, weights, cols,
                stride, squares);
}

#define SPARSEFW_INSTANTIATE(Real)                                                              \
  template CudaError LaunchBuild(const JointBatch<Real>&, cudaStream_t);                        \
  template CudaError LaunchGainBounds(const Real*, const double*, int64_t, int64_t, int64_t,    \
                                      float*, cudaStream_t);                                    \
  template CudaError LaunchWeightedSquares(const Real*, const Real*, int64_t, int64_t, int64_t, \
                                           double*, cudaStream_t);
SPARSEFW_INSTANTIATE(float)
SPARSEFW_INSTANTIATE(double)
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
