// Programs that are built for a real device have this in place of the emulation's control.h:
// nothing runs without a device, and memory is what the default pool of the device says that it is.
#include <cuda_runtime.h>

#include <cstdint>

#include "gtest/gtest.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/cuda_on_host/control.h"

namespace {

class NeedsDevice final : public ::testing::Environment {
 public:
  void SetUp() override {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return;
    if (sparsefw::testing::GpuRequired()) FAIL() << cudaGetErrorString(error);
    GTEST_SKIP() << "no device: " << cudaGetErrorString(error);
  }
};

const auto* const kNeedsDevice = ::testing::AddGlobalTestEnvironment(new NeedsDevice);

size_t PoolAttribute(cudaMemPoolAttr attribute) {
  cudaMemPool_t pool = nullptr;
  uint64_t value = 0;
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetDefaultMemPool(&pool, 0), cudaSuccess);
  EXPECT_EQ(cudaMemPoolGetAttribute(pool, attribute, &value), cudaSuccess);
  return value;
}

}  // namespace

namespace cuda_on_host {

bool Emulated() { return false; }

size_t AllocatedBytes() { return PoolAttribute(cudaMemPoolAttrUsedMemCurrent); }
size_t PeakBytes() { return PoolAttribute(cudaMemPoolAttrUsedMemHigh); }

void ResetPeak() {
  cudaMemPool_t pool = nullptr;
  uint64_t zero = 0;  // the only value that may be set: what is used now
  EXPECT_EQ(cudaDeviceGetDefaultMemPool(&pool, 0), cudaSuccess);
  EXPECT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero), cudaSuccess);
}

// Tests ask Emulated() before they call these.
int64_t CopiedToDevice() { return 0; }
void SetFault(cudaError_t error, int64_t calls) {
  static_cast<void>(error);
  static_cast<void>(calls);
}

}  // namespace cuda_on_host
