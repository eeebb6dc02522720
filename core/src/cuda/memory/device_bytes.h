// Peak device memory of an engine.
#ifndef SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_BYTES_H_
#define SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_BYTES_H_

#include <cstdint>

#include "sparsefw/backend.h"

namespace sparsefw::cuda {

// The stage that holds most: the loading of W and G, the iteration with its
// dense products or with a loss, swaps, reconstruction, the loss of weights, SparseGPT or ALPS.
// cuBLAS' workspace stays through all of them, and so does G as it was given or shrunk,
// unless others have that there already; the context of the device, what cuBLAS
// allocates for itself and the rounding of the memory pool come on top.
int64_t PeakBytes(int64_t rows, int64_t cols, const MemoryRequest& request);

// The workspace of products: ExecutionContext::Open.
int64_t WorkspaceBytes(int64_t rows, int64_t cols);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_BYTES_H_
