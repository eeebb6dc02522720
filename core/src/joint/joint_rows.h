// The rows of a joint search: what each is given, what was found, and which of it is taken; and the
// stages, in the order that every engine takes them.
#ifndef SPARSEFW_CORE_SRC_JOINT_JOINT_ROWS_H_
#define SPARSEFW_CORE_SRC_JOINT_JOINT_ROWS_H_

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/linalg/scale.h"
#include "sparsefw/backend.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {

// Entries near 1 at most, so that squares of sums of products fit float32.
Scale NearOne(Scale scale);

// One row. Losses are those of the scaled layer.
struct JointRowState {
  double start_loss = 0;  // of the weights given
  double loss = 0;        // L*, once searched; then that of the weights found
  double energy = 0;      // w H w^T
  double tolerance = 0;   // what an exchange must gain
  int64_t exchanges = 0;
  bool searched = false;
};

// Threads: Take and the const methods, for distinct rows, at the same time.
class JointRows {
 public:
  // What they refer to must outlive this object. scale: of the layer that is searched.
  JointRows(const EngineProblem& problem, const Scale& scale, const Mask& start,
            const JointRequest& request);

  int64_t rows() const { return start_.rows(); }
  int64_t cols() const { return start_.cols(); }
  const Groups& groups() const { return groups_; }
  JointRowState& state(int64_t row) { return states_[static_cast<size_t>(row)]; }
  const JointRowState& state(int64_t row) const { return states_[static_cast<size_t>(row)]; }
  // [cols], 1 where kept now, and where it must stay.
  std::vector<uint8_t> KeptOf(int64_t row) const { return BytesOf(result_.mask, row); }
  std::vector<uint8_t> FixedOf(int64_t row) const {
    return BytesOf(request_.fixed != nullptr ? *request_.fixed : fixed_, row);
  }
  // The share of its columns that a row excludes. Where the whole matrix is one group, rows differ
  // in how many columns are outside: the same share of those in each.
  double ExcludedOf(const std::vector<uint8_t>& kept) const;

  // What must stay where the request does not say it.
  void SetFixed(Mask fixed) { fixed_ = std::move(fixed); }
  // squares: sum over j of w_j^2 H_jj. per_loss: kTableauTolerance of the tableau's precision.
  void SetTolerance(int64_t row, double squares, double per_loss);
  // kept [cols]; weights [cols] of the scaled layer, not rounded; loss: L*.
  void Take(int64_t row, const uint8_t* kept, const float* weights, double loss, int64_t exchanges);
  // Rows keep what was found where it loses less than what they started with; the loss and the
  // exchanges of the result follow.
  void Judge();

  JointResult& result() { return result_; }

 private:
  static std::vector<uint8_t> BytesOf(const Mask& mask, int64_t row);
  // As LosesLess has it, of the weights found, not scaled.
  double Rounding(int64_t row) const;
  void Revert(int64_t row);

  const Scale scale_;
  const ConstMatrixView weights_;
  std::vector<double> diagonal_;  // of G
  const double gram_rounding_;
  const Mask& start_;
  const JointRequest& request_;
  const Groups groups_;
  Mask fixed_;
  std::vector<JointRowState> states_;
  JointResult result_;
};

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

#endif  // SPARSEFW_CORE_SRC_JOINT_JOINT_ROWS_H_
