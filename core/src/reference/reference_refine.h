// Swap refinement, the obvious way: every pair is tried before every swap, and
// the one that lowers the loss most is taken.
#ifndef SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_REFINE_H_
#define SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_REFINE_H_

#include "absl/functional/function_ref.h"
#include "sparsefw/backend.h"
#include "sparsefw/pattern.h"

namespace sparsefw {

// gram is symmetric; kept weights of `locked` stay. Ends early, with the mask
// so far, when `stop` says so; it is asked before every row of the start and
// before every row of a swap.
//
// Exchanges between rows have no common term: of all of them the best is that
// of the cheapest p and the most useful q of two different rows.
// Cost: for every swap the E of the rows it touched from scratch, cols^2, and
//       all pairs of these rows.
RefinedMask ReferenceRefine(const Matrix<double>& weights, const Matrix<double>& gram,
                            const Groups& groups, const Mask& start, const Mask& locked,
                            absl::FunctionRef<bool()> stop);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_REFINE_H_
