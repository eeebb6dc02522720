// The joint search, the obvious way: the full tableau of a row in float64, the best of
// all pairs before every exchange.
#ifndef SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_JOINT_H_
#define SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_JOINT_H_

#include "absl/functional/function_ref.h"
#include "sparsefw/backend.h"
#include "sparsefw/pattern.h"

namespace sparsefw {

// Engine::SearchJointly but for JointResult::loss and the comparison with the start's
// weights. gram is symmetric. No column is excluded, whatever the options say. `stop` is asked
// before every row and every exchange: rows not searched then keep the start's weights.
//
// The lower columns win among equal gains. Between rows: the best pair, then both rows anew.
// Cost: a row takes cols^2 per kept weight, and 2 cols^2 and all pairs per exchange.
// H = G + damping mean(diag G) I.
Matrix<double> Damped(const Matrix<double>& gram, double damping);

JointResult ReferenceJoint(const Matrix<double>& weights, const Matrix<double>& gram,
                           const Groups& groups, const Mask& start, const JointRequest& request,
                           DType dtype, absl::FunctionRef<bool()> stop);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_JOINT_H_
