// The linear minimisation step on the active columns of one row.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_ROW_SELECT_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_ROW_SELECT_H_

#include <cstdint>

#include "core/src/cpu/screen/active_row.h"
#include "core/src/cpu/screen/column_choice.h"
#include "core/src/cpu/screen/select_kernels.h"
#include "core/src/select/group_select.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw::cpu {

// One for every thread.
template <typename Real>
struct SelectScratch {
  explicit SelectScratch(int64_t words) : scores(1, words * 64), window(1, words) {}

  Matrix<Real> scores;
  Matrix<uint64_t> window;
};

// E_t -> E_{t+1} and V_{t+1} where one budget serves the row. Returns the threshold:
// the least score selected, 0 where every positive one was. `guess`: as SelectLargest.
template <typename Real>
Real AdvanceAndSelect(const ScreenedLayer<Real>& layer, double step, ActiveRow<Real>& row,
                      ThresholdGuess<Real>& guess, SelectScratch<Real>& scratch);

// The same where every group of a few columns has a budget.
template <typename Real>
void AdvanceAndSelectGroups(const ScreenedLayer<Real>& layer, const Groups& groups, double step,
                            ActiveRow<Real>& row, SelectScratch<Real>& scratch);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_ROW_SELECT_H_
