// Leave for a kernel to be launched with much dynamic shared memory. Kernels include this, and not
// the statuses of shared_limit.h, whose file has the function.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_ALLOW_SHARED_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_ALLOW_SHARED_H_

#include <cstddef>

#include "core/src/cuda/runtime/cuda_error.h"

namespace sparsefw::cuda {

// Above 48 KiB, static arrays included, a kernel has to be told that it may. The limit belongs to
// the kernel on a device, not to a launch: the limit is only ever raised, for all threads, or one
// engine's small launch would forbid another's large one. For the current device. Thread-safe.
CudaError AllowShared(const void* kernel, size_t bytes);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_ALLOW_SHARED_H_
