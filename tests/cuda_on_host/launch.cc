// Kernel launches: limits of the device, then block_runner.h.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "sparsefw/mutex.h"
#include "tests/cuda_on_host/block_runner.h"
#include "tests/cuda_on_host/control.h"
#include "tests/cuda_on_host/runtime.h"

namespace cuda_on_host {
namespace {

constexpr size_t kDynamicSharedUnasked = 48 * 1024;

std::atomic<int64_t> launches = 0;

// SPARSEFW_CUDA_ON_HOST_HANG; 0: no launch.
int64_t LaunchThatHangs() {
  static const char* const number = std::getenv("SPARSEFW_CUDA_ON_HOST_HANG");
  return number == nullptr ? 0 : std::atoll(number);
}

// A line of SPARSEFW_CUDA_ON_HOST_KERNELS: the file that has the kernel, and where in it.
void WriteDown(const void* kernel) {
  static const char* const path = std::getenv("SPARSEFW_CUDA_ON_HOST_KERNELS");
  if (path == nullptr) return;
  static std::FILE* const file = std::fopen(path, "a");
  Dl_info place = {};
  if (file == nullptr || dladdr(kernel, &place) == 0) return;
  const uintptr_t offset =
      reinterpret_cast<uintptr_t>(kernel) - reinterpret_cast<uintptr_t>(place.dli_fbase);
  std::fprintf(file, "%s %llx\n", place.dli_fname, static_cast<unsigned long long>(offset));
  std::fflush(file);
}

// The dynamic shared memory that kernels were allowed by cudaFuncSetAttribute.
struct Allowed {
  sparsefw::Mutex mutex;
  std::map<const void*, size_t> bytes ABSL_GUARDED_BY(mutex);
};

Allowed& AllowedShared() {
  static auto* allowed = new Allowed;
  return *allowed;
}

size_t AllowedTo(const void* kernel) {
  Allowed& allowed = AllowedShared();
  sparsefw::MutexLock lock(allowed.mutex);
  const auto found = allowed.bytes.find(kernel);
  return found == allowed.bytes.end() ? kDynamicSharedUnasked : found->second;
}

cudaError_t CheckShape(const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3& grid = config.gridDim;
  const dim3& block = config.blockDim;
  const bool grid_fits = grid.x >= 1 && grid.x <= 0x7fffffffu && grid.y >= 1 && grid.y <= 65535 &&
                         grid.z >= 1 && grid.z <= 65535;
  const bool block_fits = block.x >= 1 && block.x <= 1024 && block.y >= 1 && block.y <= 1024 &&
                          block.z >= 1 && block.z <= 64 &&
                          uint64_t{block.x} * block.y * block.z <= kMaxThreads;
  if (!grid_fits || !block_fits) return cudaErrorInvalidConfiguration;
  if (config.numAttrs != 0) return cudaErrorNotSupported;
  if (config.dynamicSmemBytes > kDynamicSharedUnasked &&
      config.dynamicSmemBytes > AllowedTo(kernel)) {
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t LaunchKernel(const cudaLaunchConfig_t& config, const void* kernel,
                         std::function<void()> thread) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  if (const cudaError_t error = CheckShape(config, kernel); error != cudaSuccess) {
    return Report(error);
  }
  const LaunchShape shape = {config.gridDim, config.blockDim, config.dynamicSmemBytes};
  return Report(Enqueue(config.stream, [shape, kernel, body = std::move(thread)] {
    const int64_t number = launches.fetch_add(1, std::memory_order_relaxed) + 1;
    WriteDown(kernel);
    while (number == LaunchThatHangs()) pause();
    BlockRunner::OfThisThread().Run(shape, body);
  }));
}

int64_t KernelLaunches() { return launches.load(); }

}  // namespace cuda_on_host

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  using cuda_on_host::Report;
  if (const cudaError_t error = cuda_on_host::DeviceState(); error != cudaSuccess) {
    return Report(error);
  }
  if (kernel == nullptr) return Report(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<size_t>(value) > cuda_on_host::kMaxDynamicShared) {
    return Report(cudaErrorInvalidValue);
  }
  cuda_on_host::Allowed& allowed = cuda_on_host::AllowedShared();
  sparsefw::MutexLock lock(allowed.mutex);
  allowed.bytes[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}
