// How much dynamic shared memory a kernel may be launched with.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_SHARED_LIMIT_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_SHARED_LIMIT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sparsefw::cuda {

// Above 48 KiB, static arrays included, a kernel has to be told that it may.
// The limit belongs to the kernel on a device, not to a launch: the limit
// is only ever raised, for all threads, or one engine's small launch would
// forbid another's large one. For the current device. Thread-safe.
absl::Status AllowShared(const void* kernel, size_t bytes);

// The most that a block may have on the current device, static arrays included.
absl::StatusOr<int64_t> MostSharedBytes();

// The dynamic shared memory that a row of a matrix should take at most on the
// current device, for kernels with up to kStaticShared of static arrays: two
// blocks on a multiprocessor of a data centre's device, and what a block may have
// on others.
inline constexpr int64_t kStaticShared = 12 << 10;
absl::StatusOr<int64_t> SharedBytesForRows();

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_SHARED_LIMIT_H_
