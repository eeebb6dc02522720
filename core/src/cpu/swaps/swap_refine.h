// Swap refinement of a mask: exchanges one kept and one pruned weight of a
// group at a time, until no exchange lowers the loss.
//
//   dL(p out, q in) = 2 w_p E_p + w_p^2 G_pp - 2 w_q E_q + w_q^2 G_qq - 2 w_p w_q G_pq
//   E += w_p G_p - w_q G_q            the last term of dL in the same row only
//
// Rows are refined each on its own (swap_row.h); where the whole matrix is one
// group, exchanges between rows (swap_between_rows.h) take turns with that,
// until neither finds anything. Such a mask is 1-swap optimal. Related:
// SparseSwaps, arXiv 2512.10922, which swaps within rows, the best pair first.
#ifndef SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_REFINE_H_
#define SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_REFINE_H_

#include "absl/status/statusor.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/backend.h"

namespace sparsefw::cpu {

// Numeric: W and G in `precision`, E and all changes of the loss in float64
// Threads: rows in parallel, exchanges between rows one after the other; the
//          mask is the same for any number of threads unless cut short
// Memory:  SwapRefineBytes
// Cost:    2 * rows * cols^2 flops for E, as much for the last sweep, and a
//          few reads of a row of G for every swap
// Stop:    what has been swapped so far is the result, not converged
absl::StatusOr<RefinedMask> RefineMask(Precision precision, const EngineProblem& problem,
                                       const Scale& scale, const Mask& start,
                                       const RefineRequest& request,
                                       const ParallelContext& context);

int64_t SwapRefineBytes(int64_t rows, int64_t cols, int64_t size);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_REFINE_H_
