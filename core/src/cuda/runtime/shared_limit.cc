#include "core/src/cuda/runtime/shared_limit.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "core/src/cuda/runtime/cuda_status.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

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
