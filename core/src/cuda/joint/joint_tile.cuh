// Tiles of products of two matrices that are stored with the sum's index as their row: the form of
// every product of the joint search, in which both operands are read along their rows.
#ifndef SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_TILE_CUH_
#define SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_TILE_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/joint/joint_batch.h"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {

inline constexpr int kTileRows = 64;
inline constexpr int kTileCols = 128;
inline constexpr int kTileThreads = 128;

// 16 bytes, which load and store at once.
template <typename Real>
struct Wide;
template <>
struct Wide<float> {
  using Vector = float4;
  static constexpr int kSize = 4;
  static __device__ void Put(const float4& from, float* to) {
    to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
  }
  static __device__ float4 Of(const float* from) {
    return make_float4(from[0], from[1], from[2], from[3]);
  }
};
template <>
struct Wide<double> {
  using Vector = double2;
  static constexpr int kSize = 2;
  static __device__ void Put(const double2& from, double* to) { to[0] = from.x, to[1] = from.y; }
  static __device__ double2 Of(const double* from) { return make_double2(from[0], from[1]); }
};

template <typename Real>
inline constexpr int kTileDepth = 64 / static_cast<int>(sizeof(Real));

// Reals of shared memory that a product takes: two stages of both operands.
template <typename Real>
inline constexpr int kProductShared = 2 * kTileDepth<Real>*(kTileRows + kTileCols);

// The operands of a tile. Columns are 16-byte aligned and rows `stride` elements apart.
template <typename Real>
struct TileOperands {
  const Real* left;        // [depth, kTileRows]
  const Real* right;       // [depth, kTileCols / 2]
  const Real* right_half;  // the same for the other half of the columns
  int64_t left_stride;
  int64_t right_stride;
  int64_t depth;                // a multiple of kTileDepth
  const Real* scale = nullptr;  // [depth]: of the rows; null: 1
};

// Rows and columns of a thread's 8 x 8 sums within the tile.
__device__ inline int TileRow(int i) {
  return (i / 4) * 32 + static_cast<int>(threadIdx.x) / 16 * 4 + i % 4;
}
__device__ inline int TileCol(int j) {
  return (j / 4) * 64 + static_cast<int>(threadIdx.x) % 16 * 4 + j % 4;
}

// The part of the next step that a thread carries from global to shared memory.
template <typename Real>
struct TileStep {
  using W = Wide<Real>;
  static constexpr int kLeftRow = kTileRows / W::kSize;  // vectors of a row
  static constexpr int kRightRow = kTileCols / W::kSize;
  static constexpr int kLeft = kTileDepth<Real> * kLeftRow / kTileThreads;
  static constexpr int kRight = kTileDepth<Real> * kRightRow / kTileThreads;
  typename W::Vector left[kLeft];
  typename W::Vector right[kRight];

  __device__ void Load(const TileOperands<Real>& from, int64_t k) {
#pragma unroll
    for (int u = 0; u < kLeft; ++u) {
      const int v = static_cast<int>(threadIdx.x) + u * kTileThreads;
      const Real* row = from.left + (k + v / kLeftRow) * from.left_stride;
      left[u] = *reinterpret_cast<const typename W::Vector*>(row + v % kLeftRow * W::kSize);
    }
#pragma unroll
    for (int u = 0; u < kRight; ++u) {
      const int v = static_cast<int>(threadIdx.x) + u * kTileThreads;
      const int col = v % kRightRow * W::kSize;
      const Real* half =
          col < kTileCols / 2 ? from.right + col : from.right_half + (col - kTileCols / 2);
      right[u] = *reinterpret_cast<const typename W::Vector*>(half + (k + v / kRightRow) *
                                                                         from.right_stride);
    }
  }

  __device__ void Store(const Real* scale, int64_t k, Real* to_left, Real* to_right) const {
#pragma unroll
    for (int u = 0; u < kLeft; ++u) {
      const int v = static_cast<int>(threadIdx.x) + u * kTileThreads;
      Real* to = to_left + v * W::kSize;
      if (scale == nullptr) {
        *reinterpret_cast<typename W::Vector*>(to) = left[u];
      } else {
        W::Put(left[u], to);
        const Real factor = scale[k + v / kLeftRow];
        for (int e = 0; e < W::kSize; ++e) to[e] *= factor;
      }
    }
#pragma unroll
    for (int u = 0; u < kRight; ++u) {
      const int v = static_cast<int>(threadIdx.x) + u * kTileThreads;
      *reinterpret_cast<typename W::Vector*>(to_right + v * W::kSize) = right[u];
    }
  }
};

// sums[i][j] = sum over k of scale_k left[k, TileRow(i)] right[k, TileCol(j)], in the order of k.
// Ends with a barrier: shared memory is free again. Numeric: Real
template <typename Real>
__device__ void MultiplyTile(const TileOperands<Real>& operands, Real* shared, Real (&sums)[8][8]) {
  constexpr int kDepth = kTileDepth<Real>;
  constexpr int kStage = kDepth * (kTileRows + kTileCols);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) sums[i][j] = 0;
  }
  if (operands.depth == 0) return;
  const int row = TileRow(0);
  const int col = TileCol(0);
  TileStep<Real> step;
  step.Load(operands, 0);
  step.Store(operands.scale, 0, shared, shared + kDepth * kTileRows);
  __syncthreads();
  int stage = 0;
  for (int64_t k = 0; k < operands.depth; k += kDepth) {
    const bool more = k + kDepth < operands.depth;
    if (more) step.Load(operands, k + kDepth);
    const Real* left = shared + stage * kStage;
    const Real* right = left + kDepth * kTileRows;
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      Real a[8];
      Real b[8];
#pragma unroll
      for (int e = 0; e < 4; e += Wide<Real>::kSize) {
        using Vector = typename Wide<Real>::Vector;
        const Real* l = left + d * kTileRows + row + e;
        const Real* r = right + d * kTileCols + col + e;
        Wide<Real>::Put(*reinterpret_cast<const Vector*>(l), a + e);
        Wide<Real>::Put(*reinterpret_cast<const Vector*>(l + 32), a + 4 + e);
        Wide<Real>::Put(*reinterpret_cast<const Vector*>(r), b + e);
        Wide<Real>::Put(*reinterpret_cast<const Vector*>(r + 64), b + 4 + e);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[i][j] += a[i] * b[j];
      }
    }
    stage ^= 1;
    if (more) {
      Real* next = shared + stage * kStage;
      step.Store(operands.scale, k + kDepth, next, next + kDepth * kTileRows);
    }
    __syncthreads();
  }
}

// nvcc takes plain loads and stores apart where their elements are also used one by one.
template <typename Vector>
__device__ Vector LoadWide(const Vector* from) {
#if defined(__CUDA_ARCH__)
  return __ldcg(from);
#else
  return *from;
#endif
}
template <typename Vector>
__device__ void StoreWide(Vector* to, const Vector& value) {
#if defined(__CUDA_ARCH__)
  __stwb(to, value);
#else
  *to = value;
#endif
}

// Stores a tile of a symmetric matrix [., stride], whose rows and columns begin at i0 and j0: the
// elements on and above the diagonal, and their mirror images in the first `rows` rows.
template <typename Real>
__device__ void StoreMirrored(const Real (&values)[8][8], int64_t i0, int64_t j0, int64_t rows,
                              int64_t stride, Real* matrix) {
  using Vector = typename Wide<Real>::Vector;
  constexpr int kSize = Wide<Real>::kSize;
  if (j0 >= i0 + kTileRows && j0 + kTileCols <= rows) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < 8; j += kSize) {
        Real* to = matrix + (i0 + TileRow(i)) * stride + j0 + TileCol(j);
        StoreWide(reinterpret_cast<Vector*>(to), Wide<Real>::Of(&values[i][j]));
      }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int i = 0; i < 8; i += kSize) {
        Real mirrored[kSize];
#pragma unroll
        for (int e = 0; e < kSize; ++e) mirrored[e] = values[i + e][j];
        Real* to = matrix + (j0 + TileCol(j)) * stride + i0 + TileRow(i);
        StoreWide(reinterpret_cast<Vector*>(to), Wide<Real>::Of(mirrored));
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t row = i0 + TileRow(i);
      const int64_t col = j0 + TileCol(j);
      if (col < row) continue;
      matrix[row * stride + col] = values[i][j];
      if (col < rows) matrix[col * stride + row] = values[i][j];
    }
  }
}

inline constexpr int kWarp = 32;

template <typename Real>
__device__ Real WarpSum(Real value) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, lanes);
  }
  return value;
}

// The greater gain; where gains are equal, the lower position or column.
struct Choice {
  double gain;
  int64_t position;
};
__device__ inline Choice Better(Choice a, Choice b) {
  if (a.gain != b.gain) return a.gain > b.gain ? a : b;
  return a.position < b.position ? a : b;
}

// `tiles` blocks that multiply, for every row of the batch.
template <typename Real>
LaunchShape TileShape(const JointBatch<Real>& batch, int64_t tiles) {
  return {.blocks_x = tiles,
          .blocks_y = batch.count,
          .threads = kTileThreads,
          .shared_bytes = sizeof(Real) * kProductShared<Real>};
}

// Tiles of columns that hold all positions.
__host__ __device__ inline int64_t TilesOf(const JointSizes& sizes) {
  return (sizes.end + kTileCols - 1) / kTileCols;
}

// Element of H of two columns of the layer; a gap, -1, is a column of the identity.
template <typename Real>
__device__ Real GramOf(const JointBatch<Real>& batch, int64_t a, int64_t b, bool same) {
  if (a < 0 || b < 0) return same ? Real{1} : Real{0};
  return batch.gram[a * batch.stride + b];
}

// The column of the layer at a position of the tableau.
template <typename Real>
__device__ int ColumnAt(const JointBatch<Real>& batch, int64_t index, int64_t position) {
  const JointSizes& sizes = batch.sizes;
  const int64_t place =
      position < sizes.kept ? sizes.fixed + position : sizes.eliminated() + position;
  return batch.columns[index * sizes.width() + place];
}

// By how much the loss changes when the column at a position is swept in or out.
template <typename Real>
__device__ double ChangeAt(const JointBatch<Real>& batch, int64_t index, int64_t position) {
  const int64_t at = index * batch.sizes.span + position;
  const auto target = static_cast<double>(batch.targets[at]);
  const auto diagonal = static_cast<double>(batch.diagonals[at]);
  return target * target / (diagonal < 0 ? -diagonal : diagonal);
}

template <typename Real>
__device__ Real ProductOf(const JointBatch<Real>& batch, int64_t index, int column) {
  if (column < 0) return Real{0};
  return static_cast<Real>(batch.products[batch.rows[index].row * batch.stride + column]);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_TILE_CUH_
