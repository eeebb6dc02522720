// Swap refinement within the rows: until no exchange inside a row lowers the loss.
//
// Wide groups (LaunchSweepRows): sweeps over a group of a row. For every kept p,
// those that cost least on their own first, the best of all q is exchanged for
// it if that lowers the loss. A sweep that exchanges nothing has tried every
// pair, or excluded it by the bound of MayImprove, and so proves that no
// exchange within the group improves; a row is done when all of its groups are
// proven since its last exchange.
//
// Narrow groups (LaunchSwapGroups): of all pairs of all groups of a row, the
// best one, exchange after exchange.
//
// Either takes at most `steps` steps in a row: a step looks at every column of
// a group, or of the row, a few times.
#ifndef SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_ROW_H_
#define SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_ROW_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/runtime/cuda_error.h"
#include "core/src/cuda/swaps/swap_state.h"

namespace sparsefw::cuda {

// Groups of at most this many columns are narrow.
inline constexpr int64_t kNarrowGroup = 64;

// For the rows that are not done. *active: how many of them are not done
// afterwards, added to what it holds.
//
// Ties: of equal changes the exchange that keeps the higher index
// Cost: one block a row; a step reads one row of G, an exchange two more.
//       E of a row is in shared memory where it fits.
template <typename Real>
CudaError LaunchSweepRows(const SwapState<Real>& state, int steps, int* active,
                          cudaStream_t stream);

// Cost: one block a row; a step reads group_cols entries of G for every column.
template <typename Real>
CudaError LaunchSwapGroups(const SwapState<Real>& state, int steps, int* active,
                           cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_ROW_H_
