// Swap refinement of a mask: exchanges one kept and one pruned weight of a
// group at a time, until no exchange lowers the loss.
//
//   dL(p out, q in) = 2 w_p E_p + w_p^2 G_pp - 2 w_q E_q + w_q^2 G_qq - 2 w_p w_q G_pq
//   E += w_p G_p - w_q G_q            the last term of dL in the same row only
//
// Rows are refined each on its own; where the whole matrix is one group, exchanges between rows
// take turns with that (swap_kernels.h), until neither finds anything. Such a mask is 1-swap
// optimal. Related: SparseSwaps, arXiv 2512.10922, which swaps within rows, the best pair first.
#ifndef SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_REFINE_H_
#define SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_REFINE_H_

#include "absl/status/statusor.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/linalg/scale.h"
#include "sparsefw/backend.h"

namespace sparsefw::cuda {

// Numeric: W and G as Real, E and all changes of the loss in float64; the same
//          bits at every run on the same device unless cut short
// Memory:  on the device 8 * rows * stride bytes for E, as much for lists of columns where groups
//          have more than 64, 2 bits a weight, and what Float64Product takes
// Cost:    2 * rows * cols^2 flops for E, as much for the last sweep, and a
//          few reads of a row of G for every swap
// Stop:    looked at between launches of some 30 ms at most, as is
//          request.out_of_time, on the calling thread; what has been swapped so
//          far is the result, not converged
// Errors:  ResourceExhausted, what went wrong on the device
template <typename Real>
absl::StatusOr<RefinedMask> RefineMask(const EngineProblem& problem, const DeviceLayer<Real>& layer,
                                       const Scale& scale, const Mask& start,
                                       const RefineRequest& request,
                                       const ExecutionContext& context);

// Device bytes of RefineMask beside the layer.
template <typename Real>
int64_t RefineBytes(int64_t rows, int64_t cols);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_REFINE_H_
