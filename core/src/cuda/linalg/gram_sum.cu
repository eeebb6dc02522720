#include "core/src/cuda/linalg/gram_sum.h"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {
namespace {

// One block a row of a stripe; a thread begins at the diagonal.
__global__ void AddProductKernel(const float* product, int64_t first, int64_t d_in, double* sum) {
  const int64_t i = blockIdx.x;
  const int64_t cols = d_in - first;
  double* row = sum + (first + i) * d_in + first;
  for (int64_t j = i + threadIdx.x; j < cols; j += kBlockThreads) {
    row[j] += static_cast<double>(product[i * cols + j]);
  }
}

__global__ void AddMeanKernel(RawMatrix upper, RawMatrix lower, int64_t first, int64_t d_in,
                              double* sum) {
  const int64_t i = blockIdx.x;
  double* row = sum + (first + i) * d_in + first;
  for (int64_t j = i + threadIdx.x; j < upper.cols; j += kBlockThreads) {
    const double entry = upper.At(i * upper.cols + j);
    const double mirrored = lower.At(j * lower.cols + i);
    row[j] += (entry + mirrored) / 2;
  }
}

__global__ void MirrorKernel(int64_t d_in, double* sum) {
  const int64_t i = blockIdx.x;
  for (int64_t j = i + 1 + threadIdx.x; j < d_in; j += kBlockThreads) {
    sum[j * d_in + i] = sum[i * d_in + j];
  }
}

}  // namespace

CudaError LaunchAddProduct(const float* product, int64_t first, int64_t rows, int64_t d_in,
                           double* sum, cudaStream_t stream) {
  return Launch(AddProductKernel, {.blocks_x = rows}, stream, product, first, d_in, sum);
}

CudaError LaunchAddMean(const RawMatrix& upper, const RawMatrix& lower, int64_t first, int64_t d_in,
                        double* sum, cudaStream_t stream) {
  return Launch(AddMeanKernel, {.blocks_x = upper.rows}, stream, upper, lower, first, d_in, sum);
}

CudaError LaunchMirror(int64_t d_in, double* sum, cudaStream_t stream) {
  return Launch(MirrorKernel, {.blocks_x = d_in}, stream, d_in, sum);
}

}  // namespace sparsefw::cuda
