#include "core/src/cuda/linalg/chunk.h"
#include "core/src/cuda/linalg/layer_kernels.h"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {
namespace {

__global__ void MaxAbsKernel(RawMatrix matrix, double* partial) {
  double largest = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kBlockThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
       i < matrix.rows * matrix.cols; i += step) {
    const double value = matrix.At(i);
    const double size = value < 0 ? -value : value;
    largest = size > largest ? size : largest;
  }
  largest = BlockReduce(largest, [](double a, double b) { return a > b ? a : b; });
  if (threadIdx.x == 0) partial[blockIdx.x] = largest;
}

template <bool kSymmetric, typename Real>
__global__ void ConvertKernel(RawMatrix matrix, double factor, Real* out, int64_t stride) {
  const int64_t row = blockIdx.x;
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x;
  if (col >= matrix.cols) return;
  double value = matrix.At(row * matrix.cols + col) * factor;
  // Scaled first: the sum of two entries near the largest double overflows.
  if (kSymmetric) value = 0.5 * (value + matrix.At(col * matrix.cols + row) * factor);
  out[row * stride + col] = static_cast<Real>(value);
}

// With the operations of core/src/solver/shrunk_gram.cc, and so with its bits.
template <typename Value>
__global__ void ShrinkKernel(RawMatrix gram, double factor, Value* out) {
  const int64_t row = blockIdx.x;
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x;
  if (col >= gram.cols) return;
  const double value = gram.At(row * gram.cols + col);
  out[row * gram.cols + col] = static_cast<Value>(row == col ? value : factor * value);
}

// One block a row.
__global__ void AsymmetricKernel(RawMatrix gram, unsigned long long* entries) {
  const int64_t row = blockIdx.x;
  int mine = 0;
  for (int64_t col = row + 1 + threadIdx.x; col < gram.cols; col += kBlockThreads) {
    if (gram.At(row * gram.cols + col) != gram.At(col * gram.cols + row)) ++mine;
  }
  mine = BlockSum(mine);
  if (threadIdx.x == 0 && mine > 0) atomicAdd(entries, static_cast<unsigned long long>(mine));
}

__device__ void LoadEight(const float* from, float (&values)[kOperandEntries]) {
#pragma unroll
  for (int part = 0; part < kOperandEntries / kChunk<float>; ++part) {
    const Chunk<float> chunk = LoadChunk(from + part * kChunk<float>);
#pragma unroll
    for (int k = 0; k < kChunk<float>; ++k) values[part * kChunk<float> + k] = chunk.v[k];
  }
}

constexpr int kMostBalance = 40;  // s_j is at least 2^-40

// One block a row j: columns[j] = s_j, columns[stride + j] = 1 / s_j. A row of a G that is not
// positive semidefinite may exceed what its diagonal says: no |G_jk| / s_j is beyond 2^above.
__global__ void __launch_bounds__(kBlockThreads)
    BalanceKernel(const float* gram, int64_t cols, int64_t stride, int above, float* columns) {
  const int64_t row = blockIdx.x;
  float largest = 0;
  for (int64_t col = threadIdx.x; row < cols && col < cols; col += kBlockThreads) {
    largest = fmaxf(largest, fabsf(gram[row * stride + col]));
  }
  largest = BlockReduce(largest, [](float a, float b) { return fmaxf(a, b); });
  if (threadIdx.x != 0) return;
  const auto below = [above](float value) {  // at most 2^above, as an exponent
    int exponent = -2 * kMostBalance;
    if (value > 0) static_cast<void>(frexpf(value, &exponent));
    return above - exponent;
  };
  const int by_diagonal = below(row < cols ? gram[row * stride + row] : 0) / 2;
  const int by_row = below(largest);
  int exponent = by_diagonal < by_row ? by_diagonal : by_row;
  exponent = exponent < 0 ? 0 : exponent > kMostBalance ? kMostBalance : exponent;
  columns[row] = ldexpf(1.0F, -exponent);
  columns[stride + row] = ldexpf(1.0F, exponent);
}

__global__ void __launch_bounds__(kBlockThreads)
    SplitKernel(const float* values, int64_t count, int64_t stride, LeftOperand<float> out) {
  const int64_t i =
      (static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x) * kOperandEntries;
  if (i >= count) return;
  float eight[kOperandEntries];
  LoadEight(values + i, eight);
  out.Put(i, i % stride, eight);
}

__global__ void __launch_bounds__(kBlockThreads)
    MisfitsKernel(const float* values, int64_t count, int64_t stride, LeftOperand<float> as,
                  int* misfits) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kBlockThreads;
  int mine = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; i < count;
       i += step) {
    const float scaled = values[i] * as.factor * as.columns[i % stride];
    if (fabsf(scaled - FloatOfHalf(HalfOfFloat(scaled))) > kHalfRounding) ++mine;
  }
  mine = BlockSum(mine);
  if (threadIdx.x == 0 && mine > 0) atomicAdd(misfits, mine);
}

// One block a row.
__global__ void __launch_bounds__(kBlockThreads)
    SplitRowsKernel(const float* values, int64_t stride, float gram_factor, LeftOperand<float> out,
                    float* scale) {
  const int64_t row = blockIdx.x;
  const float* from = values + row * stride;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * kOperandEntries;
  constexpr int64_t kStep = int64_t{kBlockThreads} * kOperandEntries;
  float eight[kOperandEntries];
  float scales[kOperandEntries];
  float largest = 0;
  for (int64_t col = first; col < stride; col += kStep) {
    LoadEight(from + col, eight);
    LoadEight(out.columns + col, scales);
    for (int k = 0; k < kOperandEntries; ++k) largest = fmaxf(largest, fabsf(eight[k]) * scales[k]);
  }
  largest = BlockReduce(largest, [](float a, float b) { return fmaxf(a, b); });
  // Within the range of float, whatever the row: a power of two and its inverse.
  int exponent = 0;
  if (largest > 0 && isfinite(largest)) {
    static_cast<void>(frexpf(largest, &exponent));
    exponent = kHalfExponent - exponent;
    exponent = exponent < -100 ? -100 : exponent > 100 ? 100 : exponent;
  }
  out.factor = ldexpf(1.0F, exponent);
  for (int64_t col = first; col < stride; col += kStep) {
    LoadEight(from + col, eight);
    out.Put(row * stride + col, col, eight);
  }
  if (threadIdx.x == 0) scale[row] = ldexpf(1.0F, -exponent) / gram_factor;
}

}  // namespace

int64_t MaxAbsBlocks(const RawMatrix& matrix) {
  constexpr int64_t kMost = 512;  // fill any device
  constexpr int64_t kElementsOfBlock = 8 * kBlockThreads;
  const int64_t blocks = (matrix.rows * matrix.cols + kElementsOfBlock - 1) / kElementsOfBlock;
  return blocks < kMost ? blocks : kMost;
}

CudaError LaunchMaxAbs(const RawMatrix& matrix, double* partial, cudaStream_t stream) {
  return Launch(MaxAbsKernel, {.blocks_x = MaxAbsBlocks(matrix)}, stream, matrix, partial);
}

template <bool kSymmetric, typename Real>
CudaError LaunchConvert(const RawMatrix& matrix, double factor, Real* out, int64_t stride,
                        cudaStream_t stream) {
  const int64_t blocks = (matrix.cols + kBlockThreads - 1) / kBlockThreads;
  return Launch(ConvertKernel<kSymmetric, Real>, {.blocks_x = matrix.rows, .blocks_y = blocks},
                stream, matrix, factor, out, stride);
}

#define SPARSEFW_INSTANTIATE(Real)                                                                 \
  template CudaError LaunchConvert<false>(const RawMatrix&, double, Real*, int64_t, cudaStream_t); \
  template CudaError LaunchConvert<true>(const RawMatrix&, double, Real*, int64_t, cudaStream_t);
SPARSEFW_INSTANTIATE(float)
SPARSEFW_INSTANTIATE(double)
#undef SPARSEFW_INSTANTIATE

CudaError LaunchShrink(const RawMatrix& gram, double shrinkage, void* out, cudaStream_t stream) {
  const auto launch = [&]<typename Value>(Value* values) {
    const int64_t blocks = (gram.cols + kBlockThreads - 1) / kBlockThreads;
    return Launch(ShrinkKernel<Value>, {.blocks_x = gram.rows, .blocks_y = blocks}, stream, gram,
                  1 - shrinkage, values);
  };
  return gram.dtype == DType::kF64 ? launch(static_cast<double*>(out))
                                   : launch(static_cast<float*>(out));
}

CudaError LaunchCountAsymmetric(const RawMatrix& gram, unsigned long long* entries,
                                cudaStream_t stream) {
  return Launch(AsymmetricKernel, {.blocks_x = gram.rows}, stream, gram, entries);
}

CudaError LaunchBalance(const float* gram, int64_t cols, int64_t stride, int largest_exponent,
                        float* columns, cudaStream_t stream) {
  return Launch(BalanceKernel, {.blocks_x = stride}, stream, gram, cols, stride,
                largest_exponent + 1, columns);
}

CudaError LaunchSplit(const float* values, int64_t count, int64_t stride,
                      const LeftOperand<float>& out, cudaStream_t stream) {
  constexpr int64_t kValuesOfBlock = int64_t{kBlockThreads} * kOperandEntries;
  return Launch(SplitKernel, {.blocks_x = (count + kValuesOfBlock - 1) / kValuesOfBlock}, stream,
                values, count, stride, out);
}

CudaError LaunchCountMisfits(const float* values, int64_t count, int64_t stride,
                             const LeftOperand<float>& as, int* misfits, cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 1024;
  const int64_t blocks = (count + kBlockThreads - 1) / kBlockThreads;
  return Launch(MisfitsKernel, {.blocks_x = blocks < kMostBlocks ? blocks : kMostBlocks}, stream,
                values, count, stride, as, misfits);
}

CudaError LaunchSplitRows(const float* values, int64_t rows, int64_t stride, float gram_factor,
                          const LeftOperand<float>& out, float* scale, cudaStream_t stream) {
  return Launch(SplitRowsKernel, {.blocks_x = rows}, stream, values, stride, gram_factor, out,
                scale);
}

}  // namespace sparsefw::cuda
