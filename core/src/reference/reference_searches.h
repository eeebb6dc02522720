// The searches beside the iteration, the obvious way.
#ifndef SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_SEARCHES_H_
#define SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_SEARCHES_H_

#include "absl/functional/function_ref.h"
#include "sparsefw/backend.h"
#include "sparsefw/dtype.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw {

// Swap refinement: every pair is tried before every swap, and the one that lowers the loss most is
// taken.
//
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

// Weight reconstruction by the normal equations of one row after the other.
//
// Engine::Reconstruct: G_SS d = (D G)_S solved by Cholesky with pivoting;
// columns that depend on others, and those that are dead, keep their weight.
// gram is symmetric. `stop` is asked before every row and every step of its
// elimination: the rows not solved then keep their masked weights, or `guess`
// where it is not null.
// Cost: rows * (kept per row)^3 / 3 multiply-adds, twice.
Matrix<float> ReferenceReconstruct(const Matrix<double>& weights, const Matrix<double>& gram,
                                   const Mask& mask, DType dtype, DType gram_dtype,
                                   const Matrix<float>* guess, absl::FunctionRef<bool()> stop);

// H = G + damping mean(diag G) I.
Matrix<double> Damped(const Matrix<double>& gram, double damping);

// The joint search: the full tableau of a row in float64, the best of all pairs before every
// exchange.
//
// Engine::SearchJointly but for JointResult::loss and the comparison with the start's
// weights. gram is symmetric. No column is excluded, whatever the options say. `stop` is asked
// before every row and every exchange: rows not searched then keep the start's weights.
//
// The lower columns win among equal gains. Between rows: the best pair, then both rows anew.
// Cost: a row takes cols^2 per kept weight, and 2 cols^2 and all pairs per exchange.
JointResult ReferenceJoint(const Matrix<double>& weights, const Matrix<double>& gram,
                           const Groups& groups, const Mask& start, const JointRequest& request,
                           DType dtype, absl::FunctionRef<bool()> stop);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_SEARCHES_H_
