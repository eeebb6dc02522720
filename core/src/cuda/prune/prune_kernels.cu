#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/prune/prune_kernels.h"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/reconstruct/rounded_value.h"

namespace sparsefw::cuda {
namespace {

constexpr int64_t kColumnsOfBlock = 2 * kBlockThreads;

// Calls body(row, col, entry) for every other column of a padded matrix: it takes col and col + 1,
// 16 bytes of each matrix at once.
template <typename Body>
__global__ void __launch_bounds__(kBlockThreads) PairsKernel(int64_t stride, Body body) {
  const int64_t row = blockIdx.x;
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kColumnsOfBlock + 2 * threadIdx.x;
  if (col < stride) body(row, col, row * stride + col);
}

template <typename Body>
CudaError ForPairs(int64_t rows, int64_t stride, const Body& body, cudaStream_t stream) {
  return Launch(PairsKernel<Body>,
                {.blocks_x = rows, .blocks_y = (stride + kColumnsOfBlock - 1) / kColumnsOfBlock},
                stream, stride, body);
}

__device__ double2 PairOf(const double* matrix, int64_t entry) {
  return *reinterpret_cast<const double2*>(matrix + entry);
}
__device__ void StorePair(double* matrix, int64_t entry, double first, double second) {
  *reinterpret_cast<double2*>(matrix + entry) = double2{first, second};
}

// The bits of an entry and the next one.
struct KeptPair {
  bool first;
  bool second;
};
__device__ KeptPair KeptAt(const BitWord* kept, int64_t entry) {
  const BitWord bits = kept[entry / 32] >> (entry % 32);
  return {(bits & 1U) != 0, (bits & 2U) != 0};
}

struct Shift {
  const double* matrix;
  double added;
  bool reversed;
  int64_t size;
  int64_t stride;
  double* out;

  __device__ double Entry(int64_t row, int64_t col) const {
    if (col >= size) return 0;
    const double shift = row == col ? added : 0;
    if (matrix == nullptr) return shift;
    const int64_t entry = row * stride + col;
    return matrix[reversed ? (size - 1) * (stride + 1) - entry : entry] + shift;
  }
  __device__ void operator()(int64_t row, int64_t col, int64_t entry) const {
    StorePair(out, entry, Entry(row, col), Entry(row, col + 1));
  }
};

// One block.
__global__ void SmallPivotKernel(const double* factor, Shift of, const int* info,
                                 SmallPivot* found) {
  const double least = static_cast<double>(of.size) * 0x1.0p-52;
  const int64_t end = *info > 0 ? *info - 1 : of.size;
  int64_t first = end;
  for (int64_t i = threadIdx.x; i < end && i < first; i += kBlockThreads) {
    const double root = factor[i * (of.stride + 1)];
    // The negation catches NaN.
    if (!(root > 0 && root * root >= least * of.Entry(i, i))) first = i;
  }
  first = BlockReduce(first, [](int64_t a, int64_t b) { return a < b ? a : b; });
  if (threadIdx.x != 0) return;
  *found = {first, 0, 0};
  if (first == of.size) return;
  // Where it ended the place may still hold what is left of the diagonal.
  const double root = factor[first * (of.stride + 1)];
  const double left = root < 0 ? root : 0;
  *found = {first, first < end ? root * root : left, of.Entry(first, first)};
}

struct Normalise {
  double* gram;
  const double* norms;
  double added;
  int64_t size;

  __device__ void operator()(int64_t row, int64_t first, int64_t entry) const {
    for (int64_t k = 0; k < 2 && first + k < size; ++k) {
      const double shifted = gram[entry + k] + (row == first + k ? added : 0.0);
      gram[entry + k] = shifted / (norms[row] * norms[first + k]);
    }
  }
};

struct ScaleColumns {
  double* matrix;
  const double* factors;
  int64_t cols;

  __device__ void operator()(int64_t, int64_t first, int64_t entry) const {
    for (int64_t k = 0; k < 2 && first + k < cols; ++k) {
      const double factor = factors[first + k];
      matrix[entry + k] = factor == 0 ? 0 : matrix[entry + k] * factor;
    }
  }
};

struct Keep {
  const BitWord* kept;
  const double* from;
  double* to;

  __device__ void operator()(int64_t, int64_t, int64_t entry) const {
    const double2 x = PairOf(from, entry);
    const KeptPair keeps = KeptAt(kept, entry);
    StorePair(to, entry, keeps.first ? x.x : 0.0, keeps.second ? x.y : 0.0);
  }
};

struct Scores {
  AlpsRows it;
  const double* matrix;
  double rho;

  __device__ void operator()(int64_t, int64_t col, int64_t entry) const {
    double2 x;
    if (matrix != nullptr) {
      x = PairOf(matrix, entry);
    } else {
      const double2 v = PairOf(it.v, entry);
      const double2 b = PairOf(it.b, entry);
      x = {(v.x + rho * b.x) / rho, (v.y + rho * b.y) / rho};
    }
    StorePair(it.right, entry, col < it.cols ? fabs(x.x) : -1.0,
              col + 1 < it.cols ? fabs(x.y) : -1.0);
  }
};

struct RightSide {
  AlpsRows it;
  double rho;

  __device__ void operator()(int64_t, int64_t, int64_t entry) const {
    const double2 y = PairOf(it.y, entry);
    const double2 v = PairOf(it.v, entry);
    const double2 d = PairOf(it.d, entry);
    StorePair(it.right, entry, y.x - v.x + rho * d.x, y.y - v.y + rho * d.y);
  }
};

struct UpdateDual {
  AlpsRows it;
  double rho;

  __device__ void operator()(int64_t, int64_t, int64_t entry) const {
    const double2 v = PairOf(it.v, entry);
    const double2 b = PairOf(it.b, entry);
    const KeptPair keeps = KeptAt(it.kept, entry);
    const double2 d = {keeps.first ? (v.x + rho * b.x) / rho : 0.0,
                       keeps.second ? (v.y + rho * b.y) / rho : 0.0};
    StorePair(it.d, entry, d.x, d.y);
    StorePair(it.v, entry, v.x + rho * (b.x - d.x), v.y + rho * (b.y - d.y));
  }
};

__global__ void __launch_bounds__(kBlockThreads)
    CountChangedKernel(const BitWord* kept, BitWord* checked, int64_t words,
                       unsigned long long* changed) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kBlockThreads;
  unsigned long long count = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; i < words;
       i += step) {
    const BitWord bits = kept[i];
    count += static_cast<unsigned long long>(__popc(bits ^ checked[i]));
    checked[i] = bits;
  }
  count = BlockSum(count);
  if (threadIdx.x == 0 && count > 0) atomicAdd(changed, count);
}

// One block a row; so below.
__global__ void __launch_bounds__(kBlockThreads)
    BeginSupportKernel(AlpsRows it, double tolerance, unsigned long long* unfinished) {
  const int64_t row = blockIdx.x;
  double squares = 0;
  double start = 0;
  for (int64_t col = 2 * threadIdx.x; col < it.stride; col += kColumnsOfBlock) {
    const int64_t entry = row * it.stride + col;
    const KeptPair keeps = KeptAt(it.kept, entry);
    const double2 product = PairOf(it.right, entry);
    double2 y = PairOf(it.y, entry);
    y = {keeps.first ? y.x : 0.0, keeps.second ? y.y : 0.0};
    const double2 r = {keeps.first ? y.x - product.x : 0.0, keeps.second ? y.y - product.y : 0.0};
    StorePair(it.d, entry, r.x, r.y);
    StorePair(it.v, entry, r.x, r.y);
    squares += r.x * r.x + r.y * r.y;
    start += y.x * y.x + y.y * y.y;
  }
  squares = BlockSum(squares);
  start = BlockSum(start);
  if (threadIdx.x != 0) return;
  const double wanted = tolerance * tolerance * start;
  it.row[row] = {squares, wanted};
  if (squares > wanted) atomicAdd(unfinished, 1ULL);
}

// Off the support direction and residual are 0, and stay it.
__global__ void __launch_bounds__(kBlockThreads)
    SupportStepKernel(AlpsRows it, unsigned long long* unfinished) {
  const int64_t begin = blockIdx.x * it.stride + 2 * threadIdx.x;
  const int64_t end = (blockIdx.x + 1) * it.stride;
  const SupportRow state = it.row[blockIdx.x];
  double curvature = 0;
  for (int64_t entry = begin; entry < end; entry += kColumnsOfBlock) {
    const double2 p = PairOf(it.v, entry);
    const double2 product = PairOf(it.right, entry);
    curvature += p.x * product.x + p.y * product.y;
  }
  curvature = BlockSum(curvature);
  double squares = state.squares;
  if (curvature > 0) {
    const double alpha = state.squares / curvature;
    squares = 0;
// Four at once spill registers on sm_80 and sm_100.
#pragma unroll 2
    for (int64_t entry = begin; entry < end; entry += kColumnsOfBlock) {
      const double2 p = PairOf(it.v, entry);
      const double2 product = PairOf(it.right, entry);
      const double2 b = PairOf(it.b, entry);
      const KeptPair keeps = KeptAt(it.kept, entry);
      double2 r = PairOf(it.d, entry);
      r.x -= keeps.first ? alpha * product.x : 0.0;
      r.y -= keeps.second ? alpha * product.y : 0.0;
      StorePair(it.b, entry, b.x + alpha * p.x, b.y + alpha * p.y);
      StorePair(it.d, entry, r.x, r.y);
      squares += r.x * r.x + r.y * r.y;
    }
    squares = BlockSum(squares);
    const double beta = squares / state.squares;
    for (int64_t entry = begin; entry < end; entry += kColumnsOfBlock) {
      const double2 p = PairOf(it.v, entry);
      const double2 r = PairOf(it.d, entry);
      StorePair(it.v, entry, r.x + beta * p.x, r.y + beta * p.y);
    }
  }
  if (threadIdx.x != 0) return;
  it.row[blockIdx.x].squares = squares;
  if (squares > state.wanted) atomicAdd(unfinished, 1ULL);
}

struct RoundWeights {
  NewWeights args;

  __device__ void operator()(int64_t row, int64_t first, int64_t entry) const {
    for (int64_t col = first; col < first + 2 && col < args.cols; ++col, ++entry) {
      const double norm = args.norms == nullptr ? 1.0 : args.norms[col];
      args.out[row * args.cols + col] =
          BitOf(args.kept, entry) ? RoundedTo(args.dtype, args.weights[entry] / norm * args.factor)
                                  : 0.0F;
    }
  }
};

}  // namespace

CudaError LaunchShift(const double* matrix, double added, bool reversed, int64_t size,
                      int64_t stride, double* out, cudaStream_t stream) {
  return ForPairs(size, stride, Shift{matrix, added, reversed, size, stride, out}, stream);
}

CudaError LaunchFindSmallPivot(const double* factor, const double* matrix, double added,
                               bool reversed, int64_t size, int64_t stride, const int* info,
                               SmallPivot* found, cudaStream_t stream) {
  return Launch(SmallPivotKernel, {}, stream, factor,
                Shift{matrix, added, reversed, size, stride, nullptr}, info, found);
}

CudaError LaunchNormalise(double* gram, const double* norms, double added, int64_t size,
                          int64_t stride, cudaStream_t stream) {
  return ForPairs(size, stride, Normalise{gram, norms, added, size}, stream);
}

CudaError LaunchScaleColumns(double* matrix, const double* factors, int64_t rows, int64_t cols,
                             int64_t stride, cudaStream_t stream) {
  return ForPairs(rows, stride, ScaleColumns{matrix, factors, cols}, stream);
}

CudaError LaunchKeep(const AlpsRows& it, const BitWord* kept, const double* from, double* to,
                     cudaStream_t stream) {
  return ForPairs(it.rows, it.stride, Keep{kept, from, to}, stream);
}

CudaError LaunchScores(const AlpsRows& it, const double* matrix, double rho, cudaStream_t stream) {
  return ForPairs(it.rows, it.stride, Scores{it, matrix, rho}, stream);
}

CudaError LaunchRightSide(const AlpsRows& it, double rho, cudaStream_t stream) {
  return ForPairs(it.rows, it.stride, RightSide{it, rho}, stream);
}

CudaError LaunchUpdateDual(const AlpsRows& it, double rho, cudaStream_t stream) {
  return ForPairs(it.rows, it.stride, UpdateDual{it, rho}, stream);
}

CudaError LaunchCountChanged(const BitWord* kept, BitWord* checked, int64_t words,
                             unsigned long long* changed, cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 264;
  const int64_t blocks = (words + kBlockThreads - 1) / kBlockThreads;
  return Launch(CountChangedKernel, {.blocks_x = blocks < kMostBlocks ? blocks : kMostBlocks},
                stream, kept, checked, words, changed);
}

CudaError LaunchBeginSupport(const AlpsRows& it, double tolerance, unsigned long long* unfinished,
                             cudaStream_t stream) {
  return Launch(BeginSupportKernel, {.blocks_x = it.rows}, stream, it, tolerance, unfinished);
}

CudaError LaunchSupportStep(const AlpsRows& it, unsigned long long* unfinished,
                            cudaStream_t stream) {
  return Launch(SupportStepKernel, {.blocks_x = it.rows}, stream, it, unfinished);
}

CudaError LaunchNewWeights(const NewWeights& args, cudaStream_t stream) {
  return ForPairs(args.rows, args.stride, RoundWeights{args}, stream);
}

}  // namespace sparsefw::cuda
