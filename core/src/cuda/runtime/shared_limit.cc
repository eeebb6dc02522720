#include "core/src/cuda/runtime/shared_limit.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/src/cuda/runtime/cuda_status.h"
#include "sparsefw/mutex.h"

namespace sparsefw::cuda {
namespace {

using Key = std::pair<int, const void*>;  // device, kernel

struct Limits {
  Mutex mutex;
  std::map<Key, size_t> bytes ABSL_GUARDED_BY(mutex);
};

Limits& AllLimits() {
  static auto* limits = new Limits;  // kernels are launched until the program ends
  return *limits;
}

}  // namespace

absl::Status AllowShared(const void* kernel, size_t bytes) {
  int device = 0;
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
  Limits& limits = AllLimits();
  const MutexLock lock(limits.mutex);
  size_t& allowed = limits.bytes[{device, kernel}];
  if (bytes <= allowed) return absl::OkStatus();
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  allowed = bytes;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SharedBytesForRows() {
  constexpr int64_t kTwoBlocks = 96 << 10;
  int device = 0;
  cudaDeviceProp properties = {};
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, device));
  return std::min(kTwoBlocks,
                  static_cast<int64_t>(properties.sharedMemPerBlockOptin) - kStaticShared);
}

}  // namespace sparsefw::cuda
