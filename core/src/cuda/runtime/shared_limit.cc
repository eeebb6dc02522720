#include "core/src/cuda/runtime/shared_limit.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/src/cuda/runtime/allow_shared.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "sparsefw/mutex.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

// What kernels were allowed so far.
struct Limits {
  Mutex mutex;
  std::map<std::pair<int, const void*>, size_t> bytes ABSL_GUARDED_BY(mutex);  // device, kernel
};

Limits& AllLimits() {
  static auto* limits = new Limits;  // kernels are launched until the program ends
  return *limits;
}

}  // namespace

CudaError AllowShared(const void* kernel, size_t bytes) {
  int device = 0;
  SPARSEFW_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  Limits& limits = AllLimits();
  const MutexLock lock(limits.mutex);
  size_t& allowed = limits.bytes[{device, kernel}];
  if (bytes <= allowed) return {};
  SPARSEFW_RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  allowed = bytes;
  return {};
}

absl::StatusOr<int64_t> MostSharedBytes() {
  int device = 0;
  int bytes = 0;
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
  // Not cudaGetDeviceProperties, which takes milliseconds.
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return int64_t{bytes};
}

absl::StatusOr<int64_t> SharedBytesForRows() {
  constexpr int64_t kTwoBlocks = 96 << 10;
  SPARSEFW_ASSIGN_OR_RETURN(const int64_t most, MostSharedBytes());
  return std::min(kTwoBlocks, most - kStaticShared);
}

}  // namespace sparsefw::cuda
