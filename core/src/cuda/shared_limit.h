// How much dynamic shared memory a kernel may be launched with.
#ifndef SPARSEFW_CORE_SRC_CUDA_SHARED_LIMIT_H_
#define SPARSEFW_CORE_SRC_CUDA_SHARED_LIMIT_H_

#include <cstddef>

#include "absl/status/status.h"

namespace sparsefw::cuda {

// Above 48 KiB, static arrays included, a kernel has to be told that it may.
// What it is told belongs to the kernel on a device, not to a launch: the limit
// is only ever raised, for all threads, or one engine's small launch would
// forbid another's large one. For the current device. Thread-safe.
absl::Status AllowShared(const void* kernel, size_t bytes);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SHARED_LIMIT_H_
