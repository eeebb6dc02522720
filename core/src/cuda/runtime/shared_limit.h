// How much dynamic shared memory a block may have. allow_shared.h lets a kernel have it.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_SHARED_LIMIT_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_SHARED_LIMIT_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace sparsefw::cuda {

// The most that a block may have on the current device, static arrays included.
absl::StatusOr<int64_t> MostSharedBytes();

// The dynamic shared memory that a row of a matrix should take at most on the current device, for
// kernels with up to kStaticShared of static arrays: two blocks on a multiprocessor of a data
// centre's device, and what a block may have on others.
inline constexpr int64_t kStaticShared = 12 << 10;
absl::StatusOr<int64_t> SharedBytesForRows();

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_SHARED_LIMIT_H_
