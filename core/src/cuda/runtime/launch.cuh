// Kernel launches that report their errors.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_LAUNCH_CUH_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/src/cuda/runtime/allow_shared.h"
#include "core/src/cuda/runtime/cuda_error.h"

namespace sparsefw::cuda {

struct LaunchShape {
  int64_t blocks_x = 1;
  int64_t blocks_y = 1;
  int threads = 256;
  size_t shared_bytes = 0;  // of DynamicShared
};

// Enqueues kernel(args...). An empty grid is no error and does nothing.
template <typename... Parameters, typename... Arguments>
CudaError Launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                 Arguments&&... arguments) {
  if (shape.blocks_x == 0 || shape.blocks_y == 0) return {};
  if (shape.shared_bytes > 0) {
    SPARSEFW_RETURN_IF_CUDA_ERROR(
        AllowShared(reinterpret_cast<const void*>(kernel), shape.shared_bytes));
  }
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  SPARSEFW_RETURN_IF_CUDA_ERROR(
      cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
  return {};
}

// The shared memory that LaunchShape::shared_bytes asked for.
template <typename T>
__device__ inline T* DynamicShared() {
  extern __shared__ __align__(16) double sparsefw_dynamic_shared[];
  return reinterpret_cast<T*>(sparsefw_dynamic_shared);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_LAUNCH_CUH_
