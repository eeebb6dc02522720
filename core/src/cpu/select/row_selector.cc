#include "core/src/cpu/select/row_selector.h"

#include <numeric>

namespace sparsefw::cpu {

template <typename Real>
RowSelector<Real>::RowSelector(Iterate<Real>& iterate)
    : iterate_(iterate), inner_(static_cast<size_t>(iterate.blocks.count())) {
  if (iterate.groups.groups_per_row > 1) return;
  for (int64_t row = 0; row < iterate.layer->rows; ++row) free_.push_back(iterate.FreeOf(row));
  guesses_.resize(free_.size());
}

template <typename Real>
void RowSelector<Real>::Scan(int64_t block, Real step) {
  RowScratch<Real> scratch(iterate_.layer->words);
  double sum = 0;
  for (int64_t row = iterate_.blocks.begin(block); row < iterate_.blocks.end(block); ++row) {
    sum += Select(row, step, scratch);
  }
  inner_[static_cast<size_t>(block)] = sum;
}

template <typename Real>
absl::StatusOr<double> RowSelector<Real>::Finish() {
  return std::accumulate(inner_.begin(), inner_.end(), 0.0);
}

template <typename Real>
double RowSelector<Real>::Select(int64_t row, Real step, RowScratch<Real>& scratch) {
  const RowOperands<Real> operands = iterate_.Row(row);
  uint64_t* const vertex = iterate_.vertex.row(row);
  Real* const scores = scratch.row_scores.data();
  if (free_.empty()) {
    const std::optional<double> inner = UpdateAndSelectGroups(operands, step, iterate_.groups,
                                                              iterate_.layer->cols, scores, vertex);
    if (inner) return *inner;
  } else {
    const auto index = static_cast<size_t>(row);
    Kernels<Real>().update_and_score(operands, step, scores);
    Kernels<Real>().zero_masked(operands.words, scores, operands.fixed, scores);
    Kernels<Real>().select_largest(scores, operands.lanes / kLaneGroup, free_[index],
                                   guesses_[index], vertex);
  }
  return Kernels<Real>().masked_dot(operands.words, operands.weights, operands.product,
                                    operands.fixed, vertex);
}

template <typename Real>
std::optional<double> UpdateAndSelectGroups(const RowOperands<Real>& operands, Real step,
                                            const Groups& groups, int64_t cols, Real* scores,
                                            uint64_t* vertex) {
  const std::optional<double> inner = Kernels<Real>().update_and_select(
      operands, step, groups.group_cols, static_cast<Real>(groups.capacity), vertex);
  if (inner) return inner;
  Kernels<Real>().update_and_score(operands, step, scores);
  const RowGroups row = {.cols = cols,
                         .group_cols = groups.group_cols,
                         .capacity = groups.capacity,
                         .fixed = operands.fixed};
  SelectInGroups(row, scores, vertex);
  return std::nullopt;
}

template class RowSelector<float>;
template class RowSelector<double>;
template std::optional<double> UpdateAndSelectGroups(const RowOperands<float>&, float,
                                                     const Groups&, int64_t, float*, uint64_t*);
template std::optional<double> UpdateAndSelectGroups(const RowOperands<double>&, double,
                                                     const Groups&, int64_t, double*, uint64_t*);

}  // namespace sparsefw::cpu
