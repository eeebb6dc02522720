// A pass of exchanges: core/src/cpu/joint/row_search.h has the rules.
#include "core/src/cuda/joint/joint_tile.cuh"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/joint/joint_rules.h"
#include "core/src/reconstruct/rounded_value.h"

namespace sparsefw::cuda {
namespace {

constexpr int kExchangeThreads = 256;
// Columns that a pass looks at again, each with its partner; the others wait for the next one.
constexpr int kMostTries = 64;

// A row's arrays, from `index` on.
template <typename Real>
struct TableauRow {
  __device__ TableauRow(const JointBatch<Real>& of, int64_t at)
      : batch(of),
        index(at),
        size(of.sizes.end),
        span(of.sizes.span),
        matrix(of.tableau + at * of.sizes.positions * span),
        targets(of.targets + at * span),
        diagonals(of.diagonals + at * span),
        floors(of.floors + at * span),
        inside(of.inside + at * span),
        pending(of.pending + at * kPendingSweeps * span),
        pending_factors(of.pending_factors + at * kPendingSweeps),
        column(of.column + at * span) {}

  // The first column of the group of a position, and where a column of the layer is.
  __device__ int64_t GroupOf(int64_t position) const {
    return ColumnAt(batch, index, position) / batch.group_cols * batch.group_cols;
  }
  __device__ int64_t PlaceOf(int64_t of_layer) const {
    return batch.places[index * batch.stride + of_layer];
  }
  __device__ bool OneGroup() const { return batch.group_cols == batch.cols; }

  const JointBatch<Real>& batch;
  const int64_t index;
  const int64_t size;
  const int64_t span;
  Real* matrix;
  Real* targets;
  Real* diagonals;
  Real* floors;
  unsigned char* inside;
  Real* pending;
  Real* pending_factors;
  Real* column;
};

// Terms that a pass finds kept: those that the last one left, unless they went into the tableau.
template <typename Real>
__device__ int PendingBefore(const JointBatch<Real>& batch, const JointRowProgress& state) {
  const bool flushed =
      batch.group_cols == batch.cols || state.pending + kPassSweeps > kPendingSweeps;
  return flushed ? 0 : state.pending;
}

// What the column at a position leaves behind when it is swept out.
template <typename Real>
struct LeavingColumn {
  Real step;
  Real inverse;
  __device__ LeavingColumn(const TableauRow<Real>& row, int64_t position)
      : inverse(-1 / row.diagonals[position]) {
    step = row.targets[position] * inverse;
  }
  // 0 where p cannot enter.
  __device__ Real Gain(Real entry, Real target, Real diagonal, Real floor) const {
    diagonal += entry * entry * inverse;
    target += entry * step;
    return diagonal > floor ? target * target / diagonal : Real{0};
  }
};

template <typename Real>
__device__ Real WarpMax(Real value) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const Real other = __shfl_xor_sync(0xffffffffU, value, lanes);
    value = other > value ? other : value;
  }
  return value;
}

// The best gain within the group of position q; a warp, whose lanes share the terms kept.
template <typename Real>
__device__ Real BestOfGroup(const TableauRow<Real>& row, int count, int64_t q) {
  const LeavingColumn<Real> leaving(row, q);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t first = row.GroupOf(q);
  Real best = 0;
  for (int64_t j = first; j < first + row.batch.group_cols; ++j) {
    const int64_t p = row.PlaceOf(j);
    if (p < 0 || row.inside[p] != 0) continue;
    Real terms = 0;
    for (int k = lane; k < count; k += kWarp) {
      const Real* term = row.pending + k * row.span;
      terms += row.pending_factors[k] * term[q] * term[p];
    }
    const Real entry = row.matrix[q * row.span + p] + WarpSum(terms);
    const Real found = leaving.Gain(entry, row.targets[p], row.diagonals[p], row.floors[p]);
    best = found > best ? found : best;
  }
  return best;
}

// A warp a position. Tableaus of one group hold all terms.
template <typename Real>
__global__ void GainsKernel(JointBatch<Real> batch) {
  using W = Wide<Real>;
  const int64_t index = blockIdx.y;
  if (batch.rows[index].done != 0) return;
  const TableauRow<Real> row(batch, index);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t q = static_cast<int64_t>(blockIdx.x) * (kBlockThreads / kWarp) +
                    static_cast<int>(threadIdx.x) / kWarp;
  if (q >= row.size) return;
  double* gain = batch.gains + index * row.span + q;
  if (row.inside[q] == 0) {
    if (lane == 0) *gain = 0;
    return;
  }
  const LeavingColumn<Real> leaving(row, q);
  const Real* column = row.matrix + q * row.span;
  Real best = 0;
  if (row.OneGroup()) {
    // Positions beyond the last one have infinite floors.
    for (int64_t p = lane * W::kSize; p < row.size; p += kWarp * W::kSize) {
      using Vector = typename W::Vector;
      Real entries[W::kSize];
      Real targets[W::kSize];
      Real diagonals[W::kSize];
      Real floors[W::kSize];
      W::Put(*reinterpret_cast<const Vector*>(column + p), entries);
      W::Put(*reinterpret_cast<const Vector*>(row.targets + p), targets);
      W::Put(*reinterpret_cast<const Vector*>(row.diagonals + p), diagonals);
      W::Put(*reinterpret_cast<const Vector*>(row.floors + p), floors);
#pragma unroll
      for (int e = 0; e < W::kSize; ++e) {
        const Real found = leaving.Gain(entries[e], targets[e], diagonals[e], floors[e]);
        best = found > best ? found : best;
      }
    }
  } else {
    best = BestOfGroup(row, PendingBefore(batch, batch.rows[index]), q);
  }
  best = WarpMax(best);
  if (lane == 0) *gain = static_cast<double>(best) - ChangeAt(batch, index, q);
}

__device__ Choice BlockBest(Choice choice) {
  return BlockReduce<kExchangeThreads>(choice, [](Choice a, Choice b) { return Better(a, b); });
}
constexpr int64_t kNowhere = int64_t{1} << 40;

// column := that of `position` as it is now. Every thread its own elements, those of its number.
template <typename Real>
__device__ void Fetch(const TableauRow<Real>& row, int count, int64_t position) {
  __shared__ Real factors[kPendingSweeps];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < count) {
    factors[thread] = row.pending_factors[thread] * row.pending[thread * row.span + position];
  }
  __syncthreads();
  for (int64_t i = thread; i < row.size; i += kExchangeThreads) {
    Real sum = row.matrix[position * row.span + i];
    for (int k = 0; k < count; ++k) sum += factors[k] * row.pending[k * row.span + i];
    row.column[i] = i == position ? row.diagonals[position] : sum;
  }
  __syncthreads();
}

// The best partner of the column fetched; none: kNowhere.
template <typename Real>
__device__ Choice BestPartner(const TableauRow<Real>& row, int64_t position) {
  const LeavingColumn<Real> leaving(row, position);
  Choice best = {0, kNowhere};
  const auto look = [&](int64_t p) {
    const Real gain = leaving.Gain(row.column[p], row.targets[p], row.diagonals[p], row.floors[p]);
    if (gain > 0) best = Better(best, {static_cast<double>(gain), p});
  };
  if (row.OneGroup()) {
    for (int64_t p = threadIdx.x; p < row.size; p += kExchangeThreads) look(p);
  } else {
    const int64_t first = row.GroupOf(position);
    for (int64_t j = threadIdx.x; j < row.batch.group_cols; j += kExchangeThreads) {
      const int64_t p = row.PlaceOf(first + j);
      if (p >= 0) look(p);
    }
  }
  return BlockBest(best);
}

// Sweeps the column fetched in or out as term `count`; returns by how much the loss falls.
//
// Row and column of the pivot are written as they are from now on, and taken out of the
// terms before: as one more rank-one term they would drown in rounding.
template <typename Real>
__device__ double Sweep(const TableauRow<Real>& row, int count, int64_t position) {
  const bool leaves = row.inside[position] != 0;
  const Real pivot = row.diagonals[position];
  const Real target = row.targets[position];
  const Real inverse = 1 / pivot;
  const Real step = target / pivot;
  const Real sign = leaves ? Real{-1} : Real{1};
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();  // all have read
  Real* stored = row.pending + count * row.span;
  for (int64_t i = thread; i < row.size; i += kExchangeThreads) {
    const Real entry = row.column[i];
    const Real placed = sign * inverse * entry;
    row.matrix[position * row.span + i] = placed;
    row.matrix[i * row.span + position] = placed;
    const bool own = i == position;
    stored[i] = own ? Real{0} : entry;
    row.targets[i] = own ? sign * step : row.targets[i] - entry * step;
    row.diagonals[i] = own ? -inverse : row.diagonals[i] - entry * entry * inverse;
  }
  if (thread < count) row.pending[thread * row.span + position] = 0;
  if (thread == 0) {
    row.pending_factors[count] = -inverse;
    row.inside[position] = leaves ? 0 : 1;
    const int column = ColumnAt(row.batch, row.index, position);
    row.floors[position] = leaves ? kPivotFloor<Real> * GramOf(row.batch, column, column, true)
                                  : static_cast<Real>(kInfiniteFloat);
  }
  __syncthreads();
  return static_cast<double>(target) * static_cast<double>(step);
}

// The exchanges of a row, one after the other; a block a row.
template <typename Real>
__global__ void __launch_bounds__(kExchangeThreads, 3) ExchangeKernel(JointBatch<Real> batch) {
  const int64_t index = blockIdx.x;
  JointRowProgress state = batch.rows[index];
  if (state.done != 0) return;
  const TableauRow<Real> row(batch, index);
  double* gains = batch.gains + index * row.span;
  const int64_t before = state.exchanges;
  const int kept = PendingBefore(batch, state);
  state.pending = kept;
  if (static_cast<int>(threadIdx.x) >= kept && threadIdx.x < kPendingSweeps) {
    row.pending_factors[threadIdx.x] = 0;
  }
  double most = 0;
  for (int tries = 0; tries < kMostTries && state.pending + 2 <= kept + kPassSweeps; ++tries) {
    Choice next = {0, kNowhere};
    for (int64_t q = threadIdx.x; q < row.size; q += kExchangeThreads) {
      if (gains[q] > state.tolerance) next = Better(next, {gains[q], q});
    }
    next = BlockBest(next);
    if (tries == 0) most = next.gain;
    if (next.position == kNowhere || next.gain < kWorthTaking * most) break;
    if (next.position % kExchangeThreads == threadIdx.x) gains[next.position] = 0;
    if (row.inside[next.position] == 0) continue;
    const double worth = tries == 0 ? 0 : kWorthTaking * most;
    const double least = worth > state.tolerance ? worth : state.tolerance;
    Fetch(row, state.pending, next.position);
    const Choice partner = BestPartner(row, next.position);
    if (partner.position == kNowhere ||
        !(partner.gain - ChangeAt(batch, index, next.position) > least)) {
      continue;
    }
    state.loss -= Sweep(row, state.pending++, next.position);
    Fetch(row, state.pending, partner.position);
    state.loss -= Sweep(row, state.pending++, partner.position);
    ++state.exchanges;
  }
  if (threadIdx.x != 0) return;
  state.done = state.exchanges == before ? 1 : 0;
  batch.rows[index] = state;
  if (state.done == 0) atomicAdd(batch.counter, 1);
}

// Terms into the tableau, as a pass leaves it or, with kAll, all of rows that columns enter; a
// block a tile on or above the diagonal.
template <typename Real, bool kAll>
__global__ void __launch_bounds__(kTileThreads) FlushKernel(JointBatch<Real> batch) {
  const JointSizes& sizes = batch.sizes;
  const int64_t index = blockIdx.y;
  const JointRowProgress& state = batch.rows[index];
  if (state.pending == 0) return;
  if (kAll ? state.entering == 0 : state.done != 0 || PendingBefore(batch, state) != 0) return;
  const int64_t tile_cols = TilesOf(sizes);
  const int64_t i0 = blockIdx.x / tile_cols * kTileRows;
  const int64_t j0 = blockIdx.x % tile_cols * kTileCols;
  if (j0 + kTileCols <= i0) return;
  const Real* pending = batch.pending + index * kPendingSweeps * sizes.span;
  constexpr int kDepth = kTileDepth<Real>;
  Real values[8][8];
  MultiplyTile<Real>({.left = pending + i0,
                      .right = pending + j0,
                      .right_half = pending + j0 + kTileCols / 2,
                      .left_stride = sizes.span,
                      .right_stride = sizes.span,
                      .depth = (state.pending + kDepth - 1) / kDepth * kDepth,
                      .scale = batch.pending_factors + index * kPendingSweeps},
                     DynamicShared<Real>(), values);
  Real* tableau = batch.tableau + index * sizes.positions * sizes.span;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const Real* from = tableau + (i0 + TileRow(i)) * sizes.span + j0;
#pragma unroll
    for (int j = 0; j < 8; j += Wide<Real>::kSize) {
      using Vector = typename Wide<Real>::Vector;
      Real entries[Wide<Real>::kSize];
      Wide<Real>::Put(LoadWide(reinterpret_cast<const Vector*>(from + TileCol(j))), entries);
#pragma unroll
      for (int e = 0; e < Wide<Real>::kSize; ++e) values[i][j + e] += entries[e];
    }
  }
  StoreMirrored(values, i0, j0, sizes.positions, sizes.span, tableau);
}

template <typename Real, bool kAll>
CudaError LaunchFlushOf(const JointBatch<Real>& batch, cudaStream_t stream) {
  const int64_t tiles = batch.sizes.positions / kTileRows * TilesOf(batch.sizes);
  return Launch(FlushKernel<Real, kAll>, TileShape(batch, tiles), stream, batch);
}

}  // namespace

template <typename Real>
CudaError LaunchPass(const JointBatch<Real>& batch, cudaStream_t stream) {
  constexpr int64_t kWarps = kBlockThreads / kWarp;
  SPARSEFW_RETURN_IF_CUDA_ERROR(
      Launch(GainsKernel<Real>,
             {.blocks_x = (batch.sizes.end + kWarps - 1) / kWarps, .blocks_y = batch.count}, stream,
             batch));
  SPARSEFW_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(batch.counter, 0, sizeof(int), stream));
  SPARSEFW_RETURN_IF_CUDA_ERROR(Launch(
      ExchangeKernel<Real>, {.blocks_x = batch.count, .threads = kExchangeThreads}, stream, batch));
  return LaunchFlushOf<Real, false>(batch, stream);
}

template <typename Real>
CudaError LaunchFlush(const JointBatch<Real>& batch, cudaStream_t stream) {
  return LaunchFlushOf<Real, true>(batch, stream);
}

#define SPARSEFW_INSTANTIATE(Real)                                      \
  template CudaError LaunchPass(const JointBatch<Real>&, cudaStream_t); \
  template CudaError LaunchFlush(const JointBatch<Real>&, cudaStream_t);
SPARSEFW_INSTANTIATE(float)
SPARSEFW_INSTANTIATE(double)
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
