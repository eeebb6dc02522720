#include "core/src/cuda/linalg/float64_product.h"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {
namespace {

__global__ void WidenKernel(const float* from, int64_t count, double* to) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (i < count) to[i] = static_cast<double>(from[i]);
}

}  // namespace

absl::Status LaunchWiden(const float* from, int64_t count, double* to, cudaStream_t stream) {
  const int64_t blocks = (count + kBlockThreads - 1) / kBlockThreads;
  return Launch(WidenKernel, {.blocks_x = blocks}, stream, from, count, to);
}

}  // namespace sparsefw::cuda
