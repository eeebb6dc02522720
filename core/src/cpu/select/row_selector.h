// The linear minimisation step in one row, where rows do not share a budget.
#ifndef SPARSEFW_CORE_SRC_CPU_SELECT_ROW_SELECTOR_H_
#define SPARSEFW_CORE_SRC_CPU_SELECT_ROW_SELECTOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/src/cpu/iteration/iterate.h"
#include "core/src/select/group_select.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Scratch of a selection beside the row; one for every thread.
template <typename Real>
struct RowScratch {
  explicit RowScratch(int64_t words) : bits(1, words), scores(1, words * 64) {}

  Matrix<uint64_t> bits;
  Matrix<Real> scores;
  std::vector<Candidate<Real>> candidates;
};

// As VertexSelector, of which it is the part that one row needs.
template <typename Real>
class RowSelector {
 public:
  virtual ~RowSelector() = default;

  // E_i += step * (U_i - E_i) and the row's vertex at the new E_i; returns
  // <D_V, E> of the row. `operands` are those of row `row`, or of its free
  // columns alone where the selector may leave out columns. Distinct rows
  // concurrently.
  virtual double Select(int64_t row, const RowOperands<Real>& operands, Real step,
                        RowScratch<Real>& scratch, uint64_t* vertex) = 0;

  // As VertexSelector::guesses.
  virtual std::span<std::byte> guesses() = 0;
};

// Null where one budget serves the whole matrix.
template <typename Real>
std::unique_ptr<RowSelector<Real>> MakeRowSelector(const Iterate<Real>& iterate);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SELECT_ROW_SELECTOR_H_
