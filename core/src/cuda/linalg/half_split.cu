#include "core/src/cuda/linalg/half_split_kernels.h"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {
namespace {

constexpr int kValuesOfThread = 4;

struct alignas(16) FourFloats {
  float v[kValuesOfThread];
};
struct alignas(8) FourHalves {
  uint16_t v[kValuesOfThread];
};

__device__ void PutFour(const FourFloats& scaled, int64_t i, const LeftOperand<float>& out) {
  FourHalves high;
  FourHalves low;
#pragma unroll
  for (int k = 0; k < kValuesOfThread; ++k) {
    high.v[k] = HalfOfFloat(scaled.v[k]);
    low.v[k] = HalfOfFloat(scaled.v[k] - FloatOfHalf(high.v[k]));
  }
  *reinterpret_cast<FourHalves*>(out.high + i) = high;
  if (out.low != nullptr) *reinterpret_cast<FourHalves*>(out.low + i) = low;
}

__global__ void __launch_bounds__(kBlockThreads)
    SplitKernel(const float* values, int64_t count, LeftOperand<float> out) {
  const int64_t i =
      (static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x) * kValuesOfThread;
  if (i >= count) return;
  FourFloats scaled = *reinterpret_cast<const FourFloats*>(values + i);
  for (float& value : scaled.v) value *= kHalfFactor;
  PutFour(scaled, i, out);
}

__global__ void __launch_bounds__(kBlockThreads)
    MisfitsKernel(const float* values, int64_t count, int* misfits) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kBlockThreads;
  int mine = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; i < count;
       i += step) {
    const float scaled = values[i] * kHalfFactor;
    if (fabsf(scaled - FloatOfHalf(HalfOfFloat(scaled))) > kHalfRounding) ++mine;
  }
  mine = BlockSum(mine);
  if (threadIdx.x == 0 && mine > 0) atomicAdd(misfits, mine);
}

// One block a row.
__global__ void __launch_bounds__(kBlockThreads)
    SplitRowsKernel(const float* values, int64_t stride, LeftOperand<float> out, float* scale) {
  const int64_t row = blockIdx.x;
  const float* from = values + row * stride;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * kValuesOfThread;
  constexpr int64_t kStep = int64_t{kBlockThreads} * kValuesOfThread;
  float largest = 0;
  for (int64_t col = first; col < stride; col += kStep) {
    const FourFloats four = *reinterpret_cast<const FourFloats*>(from + col);
    for (const float value : four.v) largest = fmaxf(largest, fabsf(value));
  }
  largest = BlockReduce(largest, [](float a, float b) { return fmaxf(a, b); });
  // Within the range of float, whatever the row: a power of two and its inverse.
  int exponent = 0;
  if (largest > 0 && isfinite(largest)) {
    static_cast<void>(frexpf(largest, &exponent));
    exponent = kHalfExponent - exponent;
    exponent = exponent < -100 ? -100 : exponent > 100 ? 100 : exponent;
  }
  const float factor = ldexpf(1.0F, exponent);
  for (int64_t col = first; col < stride; col += kStep) {
    FourFloats four = *reinterpret_cast<const FourFloats*>(from + col);
    for (float& value : four.v) value *= factor;
    PutFour(four, row * stride + col, out);
  }
  if (threadIdx.x == 0) scale[row] = ldexpf(1.0F, -exponent) / kHalfFactor;
}

}  // namespace

CudaError LaunchSplit(const float* values, int64_t count, const LeftOperand<float>& out,
                      cudaStream_t stream) {
  constexpr int64_t kValuesOfBlock = int64_t{kBlockThreads} * kValuesOfThread;
  return Launch(SplitKernel, {.blocks_x = (count + kValuesOfBlock - 1) / kValuesOfBlock}, stream,
                values, count, out);
}

CudaError LaunchCountMisfits(const float* values, int64_t count, int* misfits,
                             cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 1024;
  const int64_t blocks = (count + kBlockThreads - 1) / kBlockThreads;
  return Launch(MisfitsKernel, {.blocks_x = blocks < kMostBlocks ? blocks : kMostBlocks}, stream,
                values, count, misfits);
}

CudaError LaunchSplitRows(const float* values, int64_t rows, int64_t stride,
                          const LeftOperand<float>& out, float* scale, cudaStream_t stream) {
  return Launch(SplitRowsKernel, {.blocks_x = rows}, stream, values, stride, out, scale);
}

}  // namespace sparsefw::cuda
