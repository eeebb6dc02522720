// Misuse that must end the program, where a device would hang or give garbage.

#include "core/src/cuda/runtime/launch.cuh"
#include "gtest/gtest.h"
#include "tests/cuda_on_host/test_buffer.h"

namespace cuda_on_host {
namespace {

using sparsefw::cuda::DynamicShared;
using sparsefw::cuda::Launch;
using sparsefw::cuda::LaunchShape;

class MisuseDeathTest : public ::testing::Test {
 protected:
  MisuseDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Half a warp waits for the block, the other half for the warp.
__global__ void DeadlockKernel() {
  if (threadIdx.x % 32 < 16) {
    __syncthreads();
  } else {
    __ballot_sync(0xffffffffu, 1);
  }
}

TEST_F(MisuseDeathTest, Deadlock) {
  EXPECT_DEATH(
      static_cast<void>(Launch(DeadlockKernel, LaunchShape{.blocks_x = 3, .threads = 64}, nullptr)),
      "deadlock(.|\n)*thread \\(0, 0, 0\\) waits at the block's barrier, .*misuse_test.cu:2[0-9]"
      "(.|\n)*thread \\(16, 0, 0\\) waits in a warp operation, mask 0xffffffff"
      "(.|\n)*grid \\(3, 1, 1\\), block \\(64, 1, 1\\)");
}

__global__ void DifferentBarriersKernel() {
  if (threadIdx.x == 5) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_F(MisuseDeathTest, DifferentBarriers) {
  EXPECT_DEATH(
      static_cast<void>(Launch(DifferentBarriersKernel, LaunchShape{.threads = 64}, nullptr)),
      "meet at different barriers(.|\n)*thread \\(5, 0, 0\\) at .*misuse_test.cu");
}

__global__ void ForeignMaskKernel(unsigned* out) { out[threadIdx.x] = __ballot_sync(0xffu, 1); }

TEST_F(MisuseDeathTest, MaskWithoutTheCaller) {
  TestBuffer<unsigned> out(32);
  EXPECT_DEATH(
      static_cast<void>(Launch(ForeignMaskKernel, LaunchShape{.threads = 32}, nullptr, out.data())),
      "mask 0x000000ff, which lacks its own lane");
}

__global__ void DifferentOperationsKernel(int* out) {
  if (threadIdx.x == 0) {
    __ballot_sync(0xffffffffu, 1);
  } else {
    out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
  }
}

TEST_F(MisuseDeathTest, DifferentOperations) {
  TestBuffer<int> out(32);
  EXPECT_DEATH(static_cast<void>(Launch(DifferentOperationsKernel, LaunchShape{.threads = 32},
                                        nullptr, out.data())),
               "lanes of one warp meet in different operations");
}

__global__ void ForeignLaneKernel(int* out) {
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 32);
}

TEST_F(MisuseDeathTest, LaneOutsideTheWarp) {
  TestBuffer<int> out(32);
  EXPECT_DEATH(
      static_cast<void>(Launch(ForeignLaneKernel, LaunchShape{.threads = 32}, nullptr, out.data())),
      "reads lane (32|63) of its warp at .*misuse_test.cu");
}

TEST_F(MisuseDeathTest, BarrierOnTheHost) {
  EXPECT_DEATH(__syncthreads(), "__syncthreads outside a kernel at .*misuse_test.cu");
}

#if defined(__SANITIZE_ADDRESS__)
__global__ void OverrunKernel(int at, float* x) {
  x[at] = 1;
  DynamicShared<float>()[at] = 1;
}

TEST_F(MisuseDeathTest, AddressSanitizerSeesOverruns) {
  TestBuffer<float> x(10);
  const LaunchShape small = {.threads = 1, .shared_bytes = 32};
  EXPECT_DEATH(static_cast<void>(Launch(OverrunKernel, small, nullptr, 10, x.data())),
               "heap-buffer-overflow");
  EXPECT_DEATH(static_cast<void>(Launch(OverrunKernel, small, nullptr, 8, x.data())),
               "use-after-poison");
}
#endif

}  // namespace
}  // namespace cuda_on_host
