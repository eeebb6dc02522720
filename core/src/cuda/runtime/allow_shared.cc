#include "core/src/cuda/runtime/allow_shared.h"

#include <map>
#include <utility>

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

}  // namespace sparsefw::cuda
