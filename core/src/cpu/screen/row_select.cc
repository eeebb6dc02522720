#include "core/src/cpu/screen/row_select.h"

#include <optional>

#include "core/src/cpu/linalg/kernels.h"
#include "core/src/cpu/screen/select_kernels.h"

namespace sparsefw::cpu {

template <typename Real>
Real AdvanceAndSelect(const ScreenedLayer<Real>& layer, double step, ActiveRow<Real>& row,
                      ThresholdGuess<Real>& guess, SelectScratch<Real>& scratch) {
  Real* const scores = scratch.scores.data();
  row.Advance(layer, step, scores);
  return SelectLargest(scores, row.groups(), row.capacity, guess, row.vertex());
}

template <typename Real>
void AdvanceAndSelectGroups(const ScreenedLayer<Real>& layer, const Groups& groups, double step,
                            ActiveRow<Real>& row, SelectScratch<Real>& scratch) {
  row.AdvanceScalars(layer, step);
  const RowOperands<Real> operands = row.Operands();
  const std::optional<double> inner =
      UpdateAndSelect(operands, static_cast<Real>(step), groups.group_cols,
                      static_cast<Real>(groups.capacity), row.vertex());
  if (inner.has_value()) return;
  UpdateAndScore(operands, static_cast<Real>(step), scratch.scores.data());
  const RowGroups compact = {.cols = row.lanes(),
                             .group_cols = groups.group_cols,
                             .capacity = groups.capacity,
                             .fixed = row.fixed()};
  SelectInGroups(compact, scratch.scores.data(), row.vertex());
}

#define SPARSEFW_INSTANTIATE(Real)                                                        \
  template Real AdvanceAndSelect(const ScreenedLayer<Real>&, double, ActiveRow<Real>&,    \
                                 ThresholdGuess<Real>&, SelectScratch<Real>&);            \
  template void AdvanceAndSelectGroups(const ScreenedLayer<Real>&, const Groups&, double, \
                                       ActiveRow<Real>&, SelectScratch<Real>&)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cpu
