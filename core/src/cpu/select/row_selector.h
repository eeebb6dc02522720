// The linear minimisation step in one row, where rows do not share a budget.
#ifndef SPARSEFW_CORE_SRC_CPU_SELECT_ROW_SELECTOR_H_
#define SPARSEFW_CORE_SRC_CPU_SELECT_ROW_SELECTOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/src/cpu/iteration/iterate.h"
#include "core/src/cpu/linalg/kernels.h"
#include "core/src/cpu/select/vertex_selector.h"
#include "core/src/select/group_select.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Scratch of a selection beside the row; one for every thread.
template <typename Real>
struct RowScratch {
  explicit RowScratch(int64_t words) : bits(1, words), row_scores(1, words * 64) {}

  Matrix<uint64_t> bits;
  Matrix<Real> row_scores;
};

template <typename Real>
class RowSelector final : public VertexSelector<Real> {
 public:
  explicit RowSelector(Iterate<Real>& iterate);

  void Scan(int64_t block, Real step) override;
  absl::StatusOr<double> Finish() override;
  std::span<std::byte> guesses() override { return std::as_writable_bytes(std::span(guesses_)); }
  RowSelector<Real>* rows() override { return this; }

  // E_i += step * (U_i - E_i) and the row's vertex at the new E_i; returns
  // <D_V, E> of the row. Distinct rows concurrently.
  double Select(int64_t row, Real step, RowScratch<Real>& scratch);

 private:
  Iterate<Real>& iterate_;
  std::vector<double> inner_;  // of each block
  // Where the row has one budget, of each row: what the fixed set leaves of it, and a guess.
  std::vector<int64_t> free_;
  std::vector<ThresholdGuess<Real>> guesses_;
};

// The same of any row, where every run of a few of its `cols` columns has a budget; nothing:
// <D_V, E> was not summed.
template <typename Real>
std::optional<double> UpdateAndSelectGroups(const RowOperands<Real>& operands, Real step,
                                            const Groups& groups, int64_t cols, Real* scores,
                                            uint64_t* vertex);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SELECT_ROW_SELECTOR_H_
