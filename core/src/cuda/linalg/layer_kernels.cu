#include "core/src/cuda/linalg/layer_kernels.h"
#include "core/src/cuda/linalg/raw_value.h"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {
namespace {

__global__ void MaxAbsKernel(RawMatrix matrix, double* partial) {
  double largest = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kBlockThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
       i < matrix.rows * matrix.cols; i += step) {
    const double value = RawValue(matrix.data, matrix.dtype, i);
    const double size = value < 0 ? -value : value;
    largest = size > largest ? size : largest;
  }
  largest = BlockReduce(largest, [](double a, double b) { return a > b ? a : b; });
  if (threadIdx.x == 0) partial[blockIdx.x] = largest;
}

template <typename Real>
__global__ void ConvertKernel(RawMatrix matrix, double factor, Real* out, int64_t stride) {
  const int64_t row = blockIdx.x;
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x;
  if (col >= matrix.cols) return;
  const double value = RawValue(matrix.data, matrix.dtype, row * matrix.cols + col);
  out[row * stride + col] = static_cast<Real>(value * factor);
}

// Scaled first: the sum of two entries near the largest double overflows.
template <typename Real>
__global__ void SymmetriseKernel(RawMatrix gram, double factor, Real* out, int64_t stride) {
  const int64_t row = blockIdx.x;
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x;
  if (col >= gram.cols) return;
  const double entry = RawValue(gram.data, gram.dtype, row * gram.cols + col) * factor;
  const double mirrored = RawValue(gram.data, gram.dtype, col * gram.cols + row) * factor;
  out[row * stride + col] = static_cast<Real>(0.5 * (entry + mirrored));
}

int64_t ColumnBlocks(int64_t cols) { return (cols + kBlockThreads - 1) / kBlockThreads; }

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

template <typename Real>
CudaError LaunchConvert(const RawMatrix& matrix, double factor, Real* out, int64_t stride,
                        cudaStream_t stream) {
  return Launch(ConvertKernel<Real>,
                {.blocks_x = matrix.rows, .blocks_y = ColumnBlocks(matrix.cols)}, stream, matrix,
                factor, out, stride);
}

template <typename Real>
CudaError LaunchSymmetrise(const RawMatrix& gram, double factor, Real* out, int64_t stride,
                           cudaStream_t stream) {
  return Launch(SymmetriseKernel<Real>,
                {.blocks_x = gram.rows, .blocks_y = ColumnBlocks(gram.cols)}, stream, gram, factor,
                out, stride);
}

template CudaError LaunchConvert<float>(const RawMatrix&, double, float*, int64_t, cudaStream_t);
template CudaError LaunchConvert<double>(const RawMatrix&, double, double*, int64_t, cudaStream_t);
template CudaError LaunchSymmetrise<float>(const RawMatrix&, double, float*, int64_t, cudaStream_t);
template CudaError LaunchSymmetrise<double>(const RawMatrix&, double, double*, int64_t,
                                            cudaStream_t);

}  // namespace sparsefw::cuda
