#include "core/src/joint/joint_rows.h"

#include <algorithm>
#include <cmath>

#include "core/src/frank_wolfe/swap_tolerance.h"
#include "core/src/linalg/finite.h"
#include "core/src/reconstruct/reconstruction_rules.h"
#include "core/src/reconstruct/rounded_value.h"

namespace sparsefw {

Scale NearOne(Scale scale) {
  scale.weights_exponent -= Scale::kTargetExponent;
  scale.gram_exponent -= Scale::kTargetExponent;
  return scale;
}

JointRows::JointRows(const EngineProblem& problem, const Scale& scale, const Mask& start,
                     const JointRequest& request)
    : scale_(scale),
      weights_(problem.weights),
      diagonal_(DiagonalOf(problem.gram)),
      gram_rounding_(GramRounding(problem.gram.dtype(), problem.gram.dtype())),
      start_(start),
      request_(request),
      groups_(GroupsOf(problem.pattern, start.rows(), start.cols())),
      states_(static_cast<size_t>(start.rows())) {
  result_.mask = start;
  result_.weights = Matrix<float>(start.rows(), start.cols());
  std::copy_n(request.weights->data(), request.weights->size(), result_.weights.data());
}

std::vector<uint8_t> JointRows::BytesOf(const Mask& mask, int64_t row) {
  std::vector<uint8_t> bytes(static_cast<size_t>(mask.cols()));
  for (int64_t j = 0; j < mask.cols(); ++j) {
    bytes[static_cast<size_t>(j)] = mask.Get(row, j) ? 1 : 0;
  }
  return bytes;
}

double JointRows::ExcludedOf(const std::vector<uint8_t>& kept) const {
  const double excluded = request_.options.excluded;
  if (!groups_.whole_matrix) return excluded;
  const auto all = static_cast<double>(rows() * cols());
  const double outside = all - static_cast<double>(groups_.total_kept);
  if (!(outside > 0)) return excluded;
  const auto kept_here = static_cast<double>(std::count(kept.begin(), kept.end(), uint8_t{1}));
  const double here = 1 - kept_here / static_cast<double>(cols());
  return std::min(1.0, excluded * here * all / outside);
}

void JointRows::SetTolerance(int64_t row, double squares, double per_loss) {
  JointRowState& of = state(row);
  of.tolerance = per_loss * std::max(0.0, of.start_loss) + kSwapNoise * squares;
}

void JointRows::Take(int64_t row, const uint8_t* kept, const float* weights, double loss,
                     int64_t exchanges) {
  for (int64_t j = 0; j < cols(); ++j) {
    result_.mask.Set(row, j, kept[j] != 0);
    const double weight = std::ldexp(static_cast<double>(weights[j]), -scale_.weights_exponent);
    result_.weights(row, j) = kept[j] != 0 ? RoundedTo(weights_.dtype(), weight) : 0;
  }
  JointRowState& of = state(row);
  of.loss = loss;
  of.exchanges += exchanges;
  of.searched = true;
}

void JointRows::Judge() {
  double found = 0;
  for (int64_t row = 0; row < rows(); ++row) {
    const JointRowState& of = state(row);
    const bool better = of.searched && LosesLess(scale_.Unscaled(of.loss), Rounding(row),
                                                 scale_.Unscaled(of.start_loss));
    if (!better) Revert(row);
    found += of.loss;
    result_.exchanges += of.exchanges;
  }
  result_.loss = scale_.Unscaled(found);
}

double JointRows::Rounding(int64_t row) const {
  std::vector<double> given(diagonal_.size());
  ConvertToDouble(weights_.row_bytes(row), weights_.dtype(), given.size(), given.data());
  double squares = 0;
  for (size_t j = 0; j < given.size(); ++j) {
    const double missing =
        given[j] - static_cast<double>(result_.weights(row, static_cast<int64_t>(j)));
    squares += missing * missing * diagonal_[j];
  }
  return gram_rounding_ * squares;
}

void JointRows::Revert(int64_t row) {
  std::copy_n(start_.row(row), start_.row_bytes(), result_.mask.row(row));
  std::copy_n(request_.weights->row(row), cols(), result_.weights.row(row));
  state(row).loss = state(row).start_loss;
  state(row).exchanges = 0;
}

}  // namespace sparsefw
