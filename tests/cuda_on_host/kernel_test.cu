// Blocks, barriers, shared memory, atomics.
#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "core/src/cuda/runtime/launch.cuh"
#include "gtest/gtest.h"
#include "tests/cuda_on_host/environment.h"
#include "tests/cuda_on_host/test_buffer.h"

namespace cuda_on_host {
namespace {

using sparsefw::cuda::DynamicShared;
using sparsefw::cuda::Launch;
using sparsefw::cuda::LaunchShape;

constexpr int kThreads = 256;

// sums[block] = sum of the block's part of x; a tree in shared memory.
__global__ void __launch_bounds__(kThreads)
    BlockSumKernel(int64_t size, const double* x, double* sums) {
  __shared__ double partial[kThreads];
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  partial[threadIdx.x] = at < size ? x[at] : 0;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

TEST(Kernel, ReducesInSharedMemory) {
  for (const int size : {1, 255, 256, 1000, 5000}) {
    std::vector<double> values(static_cast<size_t>(size));
    std::iota(values.begin(), values.end(), 1.0);
    const int blocks = (size + kThreads - 1) / kThreads;
    TestBuffer<double> x(values);
    TestBuffer<double> sums(static_cast<size_t>(blocks));
    MustSucceed(Launch(BlockSumKernel, LaunchShape{.blocks_x = blocks, .threads = kThreads},
                       nullptr, size, x.data(), sums.data()));
    const std::vector<double> result = sums.Get();
    EXPECT_EQ(std::accumulate(result.begin(), result.end(), 0.0), 0.5 * size * (size + 1.0));
  }
}

// Writes every thread's place; no barrier, so all threads run on one fiber.
__global__ void PlaceKernel(int* places) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  places[block * threads + thread] += static_cast<int>(block * threads + thread) + 1;
}

TEST(Kernel, VisitsEveryThreadOfEveryBlockOnce) {
  constexpr size_t kSize = 3 * 4 * 2 * 5 * 7 * 2;
  TestBuffer<int> places(std::vector<int>(kSize, 0));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(3, 4, 2);
  config.blockDim = dim3(5, 7, 2);
  MustSucceed(cudaLaunchKernelEx(&config, PlaceKernel, places.data()));
  std::vector<int> expected(kSize);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_EQ(places.Get(), expected);
}

// Reverses each block's values through memory whose size only the launch knows.
template <typename T>
__global__ void ReverseKernel(T* x) {
  T* const copy = DynamicShared<T>();
  T* const mine = x + int64_t{blockIdx.x} * blockDim.x;
  copy[threadIdx.x] = mine[threadIdx.x];
  __syncthreads();
  mine[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}

template <typename T>
void ExpectReversed(int threads) {
  std::vector<T> values(static_cast<size_t>(threads) * 2);
  std::iota(values.begin(), values.end(), T{1});
  TestBuffer<T> x(values);
  MustSucceed(Launch(ReverseKernel<T>,
                     LaunchShape{.blocks_x = 2,
                                 .threads = threads,
                                 .shared_bytes = static_cast<size_t>(threads) * sizeof(T)},
                     nullptr, x.data()));
  const auto middle = values.begin() + threads;
  std::reverse(values.begin(), middle);
  std::reverse(middle, values.end());
  EXPECT_EQ(x.Get(), values);
}

TEST(Kernel, HasDynamicSharedMemory) {
  ExpectReversed<float>(1);
  ExpectReversed<float>(100);
  ExpectReversed<double>(1024);
}

__global__ void ReadDynamicKernel(unsigned* words) {
  words[threadIdx.x] = DynamicShared<unsigned>()[threadIdx.x];
  DynamicShared<unsigned>()[threadIdx.x] = 7;
}

TEST(Kernel, FindsNothingInSharedMemory) {
  TestBuffer<unsigned> words(64);
  for (int launch = 0; launch < 2; ++launch) {
    MustSucceed(Launch(ReadDynamicKernel, LaunchShape{.threads = 64, .shared_bytes = 256}, nullptr,
                       words.data()));
    EXPECT_EQ(words.Get(), std::vector<unsigned>(64, 0xffffffffu));
  }
}

__global__ void HistogramKernel(int size, const int* x, int* counts, unsigned long long* total,
                                int* largest) {
  __shared__ int mine[10];
  if (threadIdx.x < 10) mine[threadIdx.x] = 0;
  __syncthreads();
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < size;
       i += static_cast<int>(gridDim.x * blockDim.x)) {
    atomicAdd(&mine[x[i] % 10], 1);
    atomicAdd(total, 2ull);
    atomicMax(largest, x[i]);
  }
  __syncthreads();
  if (threadIdx.x < 10) atomicAdd(&counts[threadIdx.x], mine[threadIdx.x]);
}

TEST(Kernel, CountsWithAtomics) {
  std::vector<int> values(1234);
  std::iota(values.begin(), values.end(), 0);
  TestBuffer<int> x(values);
  TestBuffer<int> counts(std::vector<int>(10, 0));
  TestBuffer<unsigned long long> total(std::vector<unsigned long long>{0});
  TestBuffer<int> largest(std::vector<int>{0});
  MustSucceed(Launch(HistogramKernel, LaunchShape{.blocks_x = 3, .threads = 96}, nullptr, 1234,
                     x.data(), counts.data(), total.data(), largest.data()));
  EXPECT_EQ(counts.Get(), (std::vector<int>{124, 124, 124, 124, 123, 123, 123, 123, 123, 123}));
  EXPECT_EQ(total.Get()[0], 2468u);
  EXPECT_EQ(largest.Get()[0], 1233);
}

// Threads outside of [first, end) have returned when the others meet.
__global__ void LeaveKernel(int first, int end, int* results) {
  __shared__ int values[100];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < first || thread >= end) return;
  values[thread] = thread;
  __syncthreads();
  results[thread] = values[first + end - 1 - thread];
}

TEST(Kernel, MeetsAtABarrierOfTheThreadsThatRemain) {
  const std::pair<int, int> remain[] = {{0, 100}, {0, 65}, {36, 100}, {35, 64}, {50, 51}};
  for (const auto& [first, end] : remain) {
    TestBuffer<int> results(std::vector<int>(100, -1));
    MustSucceed(
        Launch(LeaveKernel, LaunchShape{.threads = 100}, nullptr, first, end, results.data()));
    std::vector<int> expected(100, -1);
    for (int i = first; i < end; ++i) expected[static_cast<size_t>(i)] = first + end - 1 - i;
    EXPECT_EQ(results.Get(), expected);
  }
}

// As CUDA, arguments become what the parameters are.
__global__ void ConvertKernel(int64_t size, float value, const float* in, float* out) {
  if (threadIdx.x < size) out[threadIdx.x] = in[threadIdx.x] + value;
}

TEST(Kernel, ConvertsArguments) {
  TestBuffer<float> x(std::vector<float>{1, 2});
  const size_t size = 2;
  MustSucceed(
      Launch(ConvertKernel, LaunchShape{.threads = 32}, nullptr, size, 0.5, x.data(), x.data()));
  EXPECT_EQ(x.Get(), (std::vector<float>{1.5f, 2.5f}));
}

TEST(Kernel, RunsOnSeveralHostThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int launch = 0; launch < 20; ++launch) ExpectReversed<double>(200);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Lacks a barrier: whether a thread sees its neighbour's value depends on the order.
__global__ void RaceKernel(int* out) {
  __shared__ int values[64];
  values[threadIdx.x] = -1;
  __syncthreads();
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = values[threadIdx.x ^ 1];
}

TEST(Kernel, ShowsAMissingBarrierInOneOfTheOrders) {
  TestBuffer<int> out(64);
  const auto result = [&](const char* order) {
    const Environment set("SPARSEFW_CUDA_ON_HOST_ORDER", order);
    MustSucceed(Launch(RaceKernel, LaunchShape{.threads = 64}, nullptr, out.data()));
    return out.Get();
  };
  const std::vector<int> forward = result("forward");
  const std::vector<int> backward = result("backward");
  for (size_t i = 0; i < 64; ++i) {
    const int neighbour = static_cast<int>(i ^ 1);
    EXPECT_EQ(forward[i], i % 2 == 1 ? neighbour : -1);
    EXPECT_EQ(backward[i], i % 2 == 0 ? neighbour : -1);
  }
}

template <typename T>
concept HasMin = requires(T x) {
  min(x, x);
};
static_assert(HasMin<int> && !HasMin<int64_t> && !HasMin<double>);

__global__ void IntrinsicsKernel(int* out) {
  out[0] = 10 * min(3, 2) + max(-1, 1);
  out[1] = __popc(0xf0u) + 10 * __ffs(8) + 100 * __ffs(0);
  out[2] = __float_as_uint(1.0f) == 0x3f800000u ? 1 : 0;
  out[3] = __double_as_longlong(1.0) == 0x3ff0000000000000ll ? 1 : 0;
}

TEST(Kernel, HasIntrinsics) {
  TestBuffer<int> out(4);
  MustSucceed(Launch(IntrinsicsKernel, LaunchShape{.threads = 1}, nullptr, out.data()));
  EXPECT_EQ(out.Get(), (std::vector<int>{21, 44, 1, 1}));
}

}  // namespace
}  // namespace cuda_on_host
