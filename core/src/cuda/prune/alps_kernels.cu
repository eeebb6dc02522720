#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/prune/alps_kernels.h"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/reconstruct/rounded_value.h"

namespace sparsefw::cuda {
namespace {

// A thread takes two columns of a row.
constexpr int64_t kColumnsOfBlock = 2 * kBlockThreads;

LaunchShape PairsOf(int64_t rows, int64_t stride) {
  return {.blocks_x = rows, .blocks_y = (stride + kColumnsOfBlock - 1) / kColumnsOfBlock};
}

__device__ int64_t FirstColumn() {
  return static_cast<int64_t>(blockIdx.y) * kColumnsOfBlock + 2 * threadIdx.x;
}

__device__ double2 PairOf(const double* matrix, int64_t i) {
  return *reinterpret_cast<const double2*>(matrix + i);
}
__device__ void StorePair(double* matrix, int64_t i, double first, double second) {
  *reinterpret_cast<double2*>(matrix + i) = double2{first, second};
}

__device__ bool Kept(const AlpsRows& it, const BitWord* kept, int64_t row, int64_t col) {
  return BitOf(kept + row * (it.stride / 32), col);
}

__global__ void NormaliseKernel(double* gram, const double* norms, double added, int64_t size,
                                int64_t stride) {
  const int64_t row = blockIdx.x;
  const int64_t first = FirstColumn();
  for (int64_t col = first; col < first + 2 && col < size; ++col) {
    const double entry = gram[row * stride + col] + (row == col ? added : 0.0);
    gram[row * stride + col] = entry / (norms[row] * norms[col]);
  }
}

__global__ void ScaleColumnsKernel(double* matrix, const double* factors, int64_t cols,
                                   int64_t stride) {
  const int64_t row = blockIdx.x;
  const int64_t first = FirstColumn();
  for (int64_t col = first; col < first + 2 && col < cols; ++col) {
    const int64_t i = row * stride + col;
    matrix[i] = factors[col] == 0 ? 0 : matrix[i] * factors[col];
  }
}

__global__ void MagnitudesKernel(AlpsRows it, const double* matrix) {
  const int64_t col = FirstColumn();
  if (col >= it.stride) return;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * it.stride + col;
  const double2 x = PairOf(matrix, i);
  StorePair(it.right, i, col < it.cols ? fabs(x.x) : -1.0, col + 1 < it.cols ? fabs(x.y) : -1.0);
}

__global__ void BeginAlternationKernel(AlpsRows it, const BitWord* kept) {
  const int64_t col = FirstColumn();
  if (col >= it.stride) return;
  const int64_t row = blockIdx.x;
  const int64_t i = row * it.stride + col;
  const double2 x = PairOf(it.dense, i);
  StorePair(it.d, i, Kept(it, kept, row, col) ? x.x : 0.0,
            Kept(it, kept, row, col + 1) ? x.y : 0.0);
  StorePair(it.v, i, 0, 0);
}

__global__ void RightSideKernel(AlpsRows it, double rho) {
  const int64_t col = FirstColumn();
  if (col >= it.stride) return;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * it.stride + col;
  const double2 y = PairOf(it.y, i);
  const double2 v = PairOf(it.v, i);
  const double2 d = PairOf(it.d, i);
  StorePair(it.right, i, y.x - v.x + rho * d.x, y.y - v.y + rho * d.y);
}

__global__ void SupportScoresKernel(AlpsRows it, double rho) {
  const int64_t col = FirstColumn();
  if (col >= it.stride) return;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * it.stride + col;
  const double2 v = PairOf(it.v, i);
  const double2 b = PairOf(it.b, i);
  StorePair(it.right, i, col < it.cols ? fabs((v.x + rho * b.x) / rho) : -1.0,
            col + 1 < it.cols ? fabs((v.y + rho * b.y) / rho) : -1.0);
}

__global__ void UpdateDualKernel(AlpsRows it, double rho) {
  const int64_t col = FirstColumn();
  if (col >= it.stride) return;
  const int64_t row = blockIdx.x;
  const int64_t i = row * it.stride + col;
  const double2 v = PairOf(it.v, i);
  const double2 b = PairOf(it.b, i);
  const double first = Kept(it, it.kept, row, col) ? (v.x + rho * b.x) / rho : 0.0;
  const double second = Kept(it, it.kept, row, col + 1) ? (v.y + rho * b.y) / rho : 0.0;
  StorePair(it.d, i, first, second);
  StorePair(it.v, i, v.x + rho * (b.x - first), v.y + rho * (b.y - second));
}

__global__ void CountChangedKernel(const BitWord* kept, BitWord* checked, int64_t words,
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

__global__ void KeepSupportKernel(AlpsRows it) {
  const int64_t col = FirstColumn();
  if (col >= it.stride) return;
  const int64_t row = blockIdx.x;
  const int64_t i = row * it.stride + col;
  const double2 b = PairOf(it.b, i);
  StorePair(it.b, i, Kept(it, it.kept, row, col) ? b.x : 0.0,
            Kept(it, it.kept, row, col + 1) ? b.y : 0.0);
}

// One block a row; so below.
__global__ void __launch_bounds__(kBlockThreads)
    BeginSupportKernel(AlpsRows it, double tolerance, unsigned long long* unfinished) {
  const int64_t row = blockIdx.x;
  double squares = 0;
  double start = 0;
  for (int64_t col = 2 * threadIdx.x; col < it.stride; col += kColumnsOfBlock) {
    const int64_t i = row * it.stride + col;
    const double2 y = PairOf(it.y, i);
    const double2 product = PairOf(it.right, i);
    const bool first = Kept(it, it.kept, row, col);
    const bool second = Kept(it, it.kept, row, col + 1);
    const double2 r = {first ? y.x - product.x : 0.0, second ? y.y - product.y : 0.0};
    StorePair(it.d, i, r.x, r.y);
    StorePair(it.v, i, r.x, r.y);
    squares += r.x * r.x + r.y * r.y;
    start += (first ? y.x * y.x : 0.0) + (second ? y.y * y.y : 0.0);
  }
  squares = BlockSum(squares);
  start = BlockSum(start);
  if (threadIdx.x != 0) return;
  const double wanted = tolerance * tolerance * start;
  it.support[row] = {squares, wanted};
  if (squares > wanted) atomicAdd(unfinished, 1ULL);
}

__global__ void __launch_bounds__(kBlockThreads)
    SupportStepKernel(AlpsRows it, unsigned long long* unfinished) {
  const int64_t row = blockIdx.x;
  const SupportRow state = it.support[row];
  double curvature = 0;
  for (int64_t col = 2 * threadIdx.x; col < it.stride; col += kColumnsOfBlock) {
    const double2 p = PairOf(it.v, row * it.stride + col);
    const double2 product = PairOf(it.right, row * it.stride + col);
    curvature += p.x * product.x + p.y * product.y;
  }
  curvature = BlockSum(curvature);
  double squares = state.squares;
  if (curvature > 0) {
    const double alpha = state.squares / curvature;
    squares = 0;
    for (int64_t col = 2 * threadIdx.x; col < it.stride; col += kColumnsOfBlock) {
      const int64_t i = row * it.stride + col;
      const double2 p = PairOf(it.v, i);
      const double2 product = PairOf(it.right, i);
      const double2 b = PairOf(it.b, i);
      double2 r = PairOf(it.d, i);
      // Off the support the direction and the residual are 0.
      r.x -= Kept(it, it.kept, row, col) ? alpha * product.x : 0.0;
      r.y -= Kept(it, it.kept, row, col + 1) ? alpha * product.y : 0.0;
      StorePair(it.b, i, b.x + alpha * p.x, b.y + alpha * p.y);
      StorePair(it.d, i, r.x, r.y);
      squares += r.x * r.x + r.y * r.y;
    }
    squares = BlockSum(squares);
    const double beta = squares / state.squares;
    for (int64_t col = 2 * threadIdx.x; col < it.stride; col += kColumnsOfBlock) {
      const int64_t i = row * it.stride + col;
      const double2 p = PairOf(it.v, i);
      const double2 r = PairOf(it.d, i);
      StorePair(it.v, i, r.x + beta * p.x, r.y + beta * p.y);
    }
  }
  if (threadIdx.x != 0) return;
  it.support[row].squares = squares;
  if (squares > state.wanted) atomicAdd(unfinished, 1ULL);
}

__global__ void NewWeightsKernel(NewWeights args) {
  const int64_t row = blockIdx.x;
  const int64_t first = FirstColumn();
  for (int64_t col = first; col < first + 2 && col < args.cols; ++col) {
    float weight = 0;
    if (BitOf(args.kept + row * (args.stride / 32), col)) {
      const double norm = args.norms == nullptr ? 1.0 : args.norms[col];
      weight = RoundedTo(args.dtype, args.weights[row * args.stride + col] / norm * args.factor);
    }
    args.out[row * args.cols + col] = weight;
  }
}

}  // namespace

CudaError LaunchNormalise(double* gram, const double* norms, double added, int64_t size,
                          int64_t stride, cudaStream_t stream) {
  return Launch(NormaliseKernel, PairsOf(size, stride), stream, gram, norms, added, size, stride);
}

CudaError LaunchScaleColumns(double* matrix, const double* factors, int64_t rows, int64_t cols,
                             int64_t stride, cudaStream_t stream) {
  return Launch(ScaleColumnsKernel, PairsOf(rows, stride), stream, matrix, factors, cols, stride);
}

CudaError LaunchMagnitudes(const AlpsRows& it, const double* matrix, cudaStream_t stream) {
  return Launch(MagnitudesKernel, PairsOf(it.rows, it.stride), stream, it, matrix);
}

CudaError LaunchBeginAlternation(const AlpsRows& it, const BitWord* kept, cudaStream_t stream) {
  return Launch(BeginAlternationKernel, PairsOf(it.rows, it.stride), stream, it, kept);
}

CudaError LaunchRightSide(const AlpsRows& it, double rho, cudaStream_t stream) {
  return Launch(RightSideKernel, PairsOf(it.rows, it.stride), stream, it, rho);
}

CudaError LaunchSupportScores(const AlpsRows& it, double rho, cudaStream_t stream) {
  return Launch(SupportScoresKernel, PairsOf(it.rows, it.stride), stream, it, rho);
}

CudaError LaunchUpdateDual(const AlpsRows& it, double rho, cudaStream_t stream) {
  return Launch(UpdateDualKernel, PairsOf(it.rows, it.stride), stream, it, rho);
}

CudaError LaunchCountChanged(const BitWord* kept, BitWord* checked, int64_t words,
                             unsigned long long* changed, cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 264;
  const int64_t blocks = (words + kBlockThreads - 1) / kBlockThreads;
  return Launch(CountChangedKernel, {.blocks_x = blocks < kMostBlocks ? blocks : kMostBlocks},
                stream, kept, checked, words, changed);
}

CudaError LaunchKeepSupport(const AlpsRows& it, cudaStream_t stream) {
  return Launch(KeepSupportKernel, PairsOf(it.rows, it.stride), stream, it);
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
  return Launch(NewWeightsKernel, PairsOf(args.rows, args.stride), stream, args);
}

}  // namespace sparsefw::cuda
