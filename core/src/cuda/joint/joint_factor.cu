#include "core/src/cuda/joint/joint_batch.h"
#include "core/src/cuda/joint/joint_tile.cuh"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/joint/joint_rules.h"

namespace sparsefw::cuda {
namespace {

// One after the other in shared memory: a tile, the triangle, inverse pivots.
template <typename Real>
inline constexpr size_t kPanelShared = sizeof(Real) *
                                       (kTileRows * kTileCols + kTileRows * kTileRows + kTileRows);
static_assert(kProductShared<float> <= kTileRows * kTileCols);

// U^T U = D, D and U upper triangles [64, 64] at `u`, with 1 / U_mm on U's diagonal.
//
// A pivot that is not above kPivotFloor times its `diagonal` is replaced by that diagonal (by 1
// where it is 0), as if as much had been added there.
template <typename Real>
__device__ void FactorTriangle(const Real* diagonal, Real* u, Real* inverses) {
  const int thread = static_cast<int>(threadIdx.x);
  const int j = thread % kTileRows;
  for (int m = 0; m < kTileRows; ++m) {
    Real pivot = u[m * kTileRows + m];
    if (!(pivot > kPivotFloor<Real> * diagonal[m])) {
      pivot = diagonal[m] > 0 ? diagonal[m] : Real{1};
    }
    const Real inverse = 1 / sqrt(pivot);
    if (thread == 0) inverses[m] = inverse;
    if (j > m) {
      const Real right = u[m * kTileRows + j] * inverse;
      for (int i = m + 1 + thread / kTileRows; i <= j; i += kTileThreads / kTileRows) {
        u[i * kTileRows + j] -= (u[m * kTileRows + i] * inverse) * right;
      }
    }
    __syncthreads();
  }
  for (int m = thread / kTileRows; m < kTileRows; m += kTileThreads / kTileRows) {
    if (j > m) u[m * kTileRows + j] *= inverses[m];
    if (j == m) u[m * kTileRows + m] = inverses[m];
  }
  __syncthreads();
}

// x := U^-T x.
template <typename Real>
__device__ void SolveColumn(const Real* u, Real (&x)[kTileRows]) {
#pragma unroll
  for (int m = 0; m < kTileRows; ++m) {
    x[m] *= u[m * kTileRows + m];
#pragma unroll
    for (int j = m + 1; j < kTileRows; ++j) x[j] -= u[m * kTileRows + j] * x[m];
  }
}

// The panel at `row` of [H_EE | 0 or I, H_EO, b]: an entry before anything is eliminated.
template <typename Real>
__device__ Real EntryOf(const JointBatch<Real>& batch, int64_t index, int64_t row, int64_t col) {
  const JointSizes& sizes = batch.sizes;
  const int* columns = batch.columns + index * sizes.width();
  const int64_t z = col - sizes.eliminated();
  if (z >= 0 && z < sizes.kept) return row - sizes.fixed == z ? Real{1} : Real{0};
  if (z == sizes.target) return ProductOf(batch, index, columns[row]);
  return GramOf(batch, columns[row], columns[col], row == col);
}

// A tile of a panel: its columns of the factor, those that are written, and the first row above it
// that is not 0 there.
struct TilePlace {
  int64_t begin;
  int64_t first;
  int64_t end;
  int64_t top;
  bool zero;  // nothing in it is anything but 0
};

__device__ TilePlace PlaceOf(const JointSizes& sizes, int64_t panel, int64_t tile,
                             const PanelTiles& tiles) {
  if (!tiles.border && tile < tiles.square) {
    const int64_t begin = panel + tile * kTileCols;
    return {begin, begin, sizes.eliminated(), 0, false};
  }
  const int64_t z = tiles.first + (tile - (tiles.border ? 1 : tiles.square)) * kTileCols;
  const bool of_identity = z + kTileCols <= sizes.kept;
  int64_t top = of_identity ? sizes.fixed + z : 0;
  if (!tiles.border && z >= sizes.room) top = panel;  // gaps until something is admitted
  return {sizes.eliminated() + z, sizes.eliminated() + tiles.first, sizes.eliminated() + tiles.end,
          top, of_identity && z >= panel + kPanelRows - sizes.fixed};
}

// The sum of what the rows above the panel take from a tile, [64, 128] in shared memory.
template <typename Real>
__device__ void SumAbove(const Real* factor, int64_t width, int64_t panel, const TilePlace& place,
                         Real* shared) {
  const Real* right = factor + place.top * width + place.begin;
  Real sums[8][8];
  MultiplyTile<Real>({.left = factor + place.top * width + panel,
                      .right = right,
                      .right_half = right + kTileCols / 2,
                      .left_stride = width,
                      .right_stride = width,
                      .depth = panel - place.top},
                     shared, sums);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) shared[TileRow(i) * kTileCols + TileCol(j)] = sums[i][j];
  }
}

// kSquare: the panel's own triangle is in the tile; it is factored. A block a tile and a row of
// the batch.
template <typename Real, bool kSquare>
__global__ void __launch_bounds__(kTileThreads)
    PanelKernel(JointBatch<Real> batch, int64_t panel, PanelTiles tiles) {
  const JointSizes& sizes = batch.sizes;
  const int64_t width = sizes.width();
  const int64_t index = blockIdx.y;
  if (tiles.border && batch.rows[index].entering == 0) return;
  const TilePlace place = PlaceOf(sizes, panel, blockIdx.x + (kSquare ? 0 : 1), tiles);
  if (place.zero) return;
  Real* factor = batch.factor + index * sizes.eliminated() * width;
  Real* rows = factor + panel * width;
  Real* shared = DynamicShared<Real>();
  Real* u = shared + kTileRows * kTileCols;
  const int thread = static_cast<int>(threadIdx.x);
  SumAbove(factor, width, panel, place, shared);
  if (!kSquare) {
    for (int i = thread; i < kTileRows * kTileRows; i += kTileThreads) {
      const int m = i / kTileRows;
      const int j = i % kTileRows;
      const Real entry = rows[m * width + panel + j];
      u[i] = m == j ? 1 / entry : entry;
    }
  }
  __syncthreads();
  const int64_t col = place.begin + thread;
  const bool there = col < place.end;
  Real x[kTileRows];
#pragma unroll
  for (int m = 0; m < kTileRows; ++m) {
    const Real entry = there ? EntryOf(batch, index, panel + m, col) : Real{0};
    x[m] = entry - shared[m * kTileCols + thread];
  }
  if (kSquare) {
    __syncthreads();  // of the tile nothing is needed any more
    if (thread < kTileRows) {
#pragma unroll
      for (int m = 0; m < kTileRows; ++m) u[m * kTileRows + thread] = x[m];
      shared[thread] = EntryOf(batch, index, panel + thread, panel + thread);
    }
    __syncthreads();
    FactorTriangle(shared, u, u + kTileRows * kTileRows);
    if (thread < kTileRows) {
      for (int m = 0; m <= thread; ++m) {
        const Real entry = u[m * kTileRows + thread];
        rows[m * width + col] = m == thread ? 1 / entry : entry;
      }
      return;
    }
  }
  if (!there || col < place.first) return;
  SolveColumn(u, x);
#pragma unroll
  for (int m = 0; m < kTileRows; ++m) rows[m * width + col] = x[m];
}

}  // namespace

template <typename Real>
CudaError LaunchPanel(const JointBatch<Real>& batch, int64_t panel, const PanelTiles& tiles,
                      cudaStream_t stream) {
  LaunchShape shape = {
      .blocks_y = batch.count, .threads = kTileThreads, .shared_bytes = kPanelShared<Real>};
  if (!tiles.border) {
    SPARSEFW_RETURN_IF_CUDA_ERROR(
        Launch(PanelKernel<Real, true>, shape, stream, batch, panel, tiles));
  }
  shape.blocks_x = (tiles.border ? 0 : tiles.square - 1) + tiles.of_z;
  return Launch(PanelKernel<Real, false>, shape, stream, batch, panel, tiles);
}

template CudaError LaunchPanel(const JointBatch<float>&, int64_t, const PanelTiles&, cudaStream_t);
template CudaError LaunchPanel(const JointBatch<double>&, int64_t, const PanelTiles&, cudaStream_t);

}  // namespace sparsefw::cuda
