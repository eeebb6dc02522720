// Launches that prepare swap refinement.
#ifndef SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_SETUP_H_
#define SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_SETUP_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/runtime/cuda_error.h"
#include "core/src/cuda/swaps/swap_state.h"

namespace sparsefw::cuda {

// diagonal[j] = G_jj and reach[p] = max over j != p of |G_pj| / sqrt(G_jj),
// infinite where a zero divides: it bounds what a partner of p can gain by
// being in the same row, G positive semi-definite or not. [stride] each.
template <typename Real>
CudaError LaunchDiagonal(const Real* gram, int64_t cols, int64_t stride, double* diagonal,
                         double* reach, cudaStream_t stream);

// tolerance[row] from E of the start: core/src/frank_wolfe/swap_tolerance.h.
template <typename Real>
CudaError LaunchTolerance(const SwapState<Real>& state, double* tolerance, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_SETUP_H_
