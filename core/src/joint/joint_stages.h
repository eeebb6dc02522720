// The stages of a joint search, in the order that every engine takes them.
#ifndef SPARSEFW_CORE_SRC_JOINT_JOINT_STAGES_H_
#define SPARSEFW_CORE_SRC_JOINT_JOINT_STAGES_H_

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/joint/joint_rows.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {

// `search` has the stages of an engine and
//   JointRows& found()   the rows that they fill
//   bool converged()     no exchange was left in any row, and nothing was cut short
// A stop before Prepare has ended leaves the start, with a loss that nothing is compared with.
// Errors: of the stages
template <typename Search>
absl::StatusOr<JointResult> RunJointStages(Search& search) {
  JointResult& result = search.found().result();
  const absl::Status prepared = search.Prepare();
  if (absl::IsCancelled(prepared)) {
    result.loss = std::numeric_limits<double>::infinity();
    return std::move(result);
  }
  SPARSEFW_RETURN_IF_ERROR(prepared);
  SPARSEFW_RETURN_IF_ERROR(search.SearchRows());
  SPARSEFW_RETURN_IF_ERROR(search.SolveWeights());
  SPARSEFW_RETURN_IF_ERROR(search.TakeLosses());
  search.found().Judge();
  result.converged = search.converged();
  return std::move(result);
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_JOINT_JOINT_STAGES_H_
