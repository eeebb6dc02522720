// Warp operations.
#include <numeric>
#include <vector>

#include "core/src/cuda/runtime/launch.cuh"
#include "gtest/gtest.h"
#include "tests/cuda_on_host/test_buffer.h"

namespace cuda_on_host {
namespace {

using sparsefw::cuda::Launch;
using sparsefw::cuda::LaunchShape;

constexpr unsigned kAll = 0xffffffffu;

// Keeps the even values in order: a scan within warps by ballot, across warps
// through shared memory.
__global__ void CompactKernel(int size, const int* x, int* kept, int* count) {
  __shared__ int warp_counts[32];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % warpSize;
  const bool keep = thread < size && x[thread] % 2 == 0;
  const unsigned votes = __ballot_sync(kAll, keep);
  if (lane == 0) warp_counts[thread / warpSize] = __popc(votes);
  __syncthreads();
  int before = __popc(votes & ((1u << lane) - 1u));
  for (int warp = 0; warp < thread / warpSize; ++warp) before += warp_counts[warp];
  if (keep) kept[before] = x[thread];
  if (thread == static_cast<int>(blockDim.x) - 1) *count = before + (keep ? 1 : 0);
}

TEST(Warp, ScansByBallot) {
  std::vector<int> values(200);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i * i / 3);
  std::vector<int> expected;
  for (const int value : values) {
    if (value % 2 == 0) expected.push_back(value);
  }
  TestBuffer<int> x(values);
  TestBuffer<int> kept(200);
  TestBuffer<int> count(1);
  MustSucceed(Launch(CompactKernel, LaunchShape{.threads = 224}, nullptr, 200, x.data(),
                     kept.data(), count.data()));
  ASSERT_EQ(count.Get()[0], static_cast<int>(expected.size()));
  std::vector<int> result = kept.Get();
  result.resize(expected.size());
  EXPECT_EQ(result, expected);
}

template <typename T>
__global__ void WarpSumKernel(const T* x, T* sum, T* first) {
  T total = x[threadIdx.x];
  for (int step = 16; step > 0; step /= 2) {
    total = static_cast<T>(total + __shfl_xor_sync(kAll, total, step));
  }
  sum[threadIdx.x] = total;
  first[threadIdx.x] = __shfl_sync(kAll, x[threadIdx.x], 0);
}

template <typename T>
class WarpOf : public ::testing::Test {};
using ShuffleTypes =
    ::testing::Types<int, unsigned, long, long long, unsigned long long, float, double>;
TYPED_TEST_SUITE(WarpOf, ShuffleTypes);

TYPED_TEST(WarpOf, SumsByShuffle) {
  std::vector<TypeParam> values(96);
  std::iota(values.begin(), values.end(), TypeParam{1});
  std::vector<TypeParam> sum_expected(96);
  std::vector<TypeParam> first_expected(96);
  for (size_t warp = 0; warp < 96; warp += 32) {
    TypeParam sum = 0;
    for (size_t i = warp; i < warp + 32; ++i) sum += values[i];
    for (size_t i = warp; i < warp + 32; ++i) sum_expected[i] = sum;
    for (size_t i = warp; i < warp + 32; ++i) first_expected[i] = values[warp];
  }
  TestBuffer<TypeParam> x(values);
  TestBuffer<TypeParam> sum(96);
  TestBuffer<TypeParam> first(96);
  MustSucceed(Launch(WarpSumKernel<TypeParam>, LaunchShape{.threads = 96}, nullptr, x.data(),
                     sum.data(), first.data()));
  EXPECT_EQ(sum.Get(), sum_expected);
  EXPECT_EQ(first.Get(), first_expected);
}

// The halves of a warp go different ways, with different numbers of steps.
__global__ void HalvesKernel(unsigned* out) {
  const unsigned lane = threadIdx.x;
  if (lane < 16) {
    out[lane] = __ballot_sync(0x0000ffffu, lane % 2 == 0);
  } else {
    unsigned votes = 0;
    for (unsigned step = 0; step < 5; ++step) {
      votes |= __ballot_sync(0xffff0000u, lane == 20 + step);
    }
    out[lane] = votes;
  }
  __ballot_sync(kAll, 1);
  out[32 + lane] = out[31 - lane];
}

TEST(Warp, AllowsSubsetsToDiverge) {
  TestBuffer<unsigned> out(64);
  MustSucceed(Launch(HalvesKernel, LaunchShape{.threads = 32}, nullptr, out.data()));
  const std::vector<unsigned> result = out.Get();
  for (size_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(result[lane], lane < 16 ? 0x5555u : 0x01f00000u);
    EXPECT_EQ(result[32 + lane], lane < 16 ? 0x01f00000u : 0x5555u);
  }
}

// A block that ends within a warp; lanes that return before the others vote.
__global__ void PartialKernel(unsigned* votes, float* shuffled) {
  if (threadIdx.x % 32 == 1) return;
  votes[threadIdx.x] = __ballot_sync(kAll, 1);
  shuffled[threadIdx.x] = __shfl_sync(kAll, 1.0f, 1);
}

TEST(Warp, LeavesOutLanesThatReturned) {
  TestBuffer<unsigned> votes(std::vector<unsigned>(40, 0));
  TestBuffer<float> shuffled(std::vector<float>(40, 0));
  MustSucceed(
      Launch(PartialKernel, LaunchShape{.threads = 40}, nullptr, votes.data(), shuffled.data()));
  EXPECT_EQ(votes.Get()[0], 0xfffffffdu);
  EXPECT_EQ(votes.Get()[39], 0x000000fdu);
  // The value of a lane that takes no part is nobody's to use.
  EXPECT_TRUE(isnan(shuffled.Get()[0]));
}

}  // namespace
}  // namespace cuda_on_host
