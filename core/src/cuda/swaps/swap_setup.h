// Launches that prepare swap refinement.
#ifndef SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_SETUP_H_
#define SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_SETUP_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "core/src/cuda/runtime/device_layer.h"
#include "core/src/cuda/swaps/swap_state.h"

namespace sparsefw::cuda {

// diagonal[j] = G_jj and reach[p] = max over j != p of |G_pj| / sqrt(G_jj),
// infinite where a zero divides: it bounds what a partner of p can gain by
// being in the same row, G positive semi-definite or not. [stride] each.
template <typename Real>
absl::Status LaunchDiagonal(const DeviceLayer<Real>& layer, double* diagonal, double* reach,
                            cudaStream_t stream);

// out [rows, depth] = W.(1 - M), columns [first, first + count) of it.
template <typename Real>
absl::Status LaunchPrunedColumns(const DeviceLayer<Real>& layer, const BitWord* kept, int64_t first,
                                 int64_t count, int64_t depth, double* out, cudaStream_t stream);

// tolerance[row] from E of the start: backend.h.
template <typename Real>
absl::Status LaunchTolerance(const SwapState<Real>& state, double* tolerance, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_SETUP_H_
