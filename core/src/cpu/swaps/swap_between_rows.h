// Swap refinement between rows, where the whole matrix is one group.
#ifndef SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_BETWEEN_ROWS_H_
#define SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_BETWEEN_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/src/cpu/swaps/row_minimum.h"
#include "core/src/cpu/swaps/swap_state.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Exchanges of a p in one row and a q in another have no common term, so the
// best of them is that of the cheapest p and the most useful q. They are found
// in two tournament trees over the rows, one exchange after the other.
//
// Ties: of equal changes the one that keeps the higher row-major index.
// Cost: an exchange reads and writes two rows of E and reads two of G.
template <typename Real>
class BetweenRows {
 public:
  BetweenRows(SwapState<Real>& state, SwapBudget& budget);

  // Takes the rows' best terms anew: after rows were changed elsewhere.
  absl::Status Update(const ParallelContext& context);
  // Exchanges until none between rows lowers the loss or the budget is spent. Marks the rows that
  // it touches in `changed`.
  SwapTally Exchange(std::vector<uint8_t>& changed);

 private:
  struct Best {
    double value;
    int64_t col;
  };
  struct RowBest {
    Best out;
    Best in;
  };
  struct Pair {
    double excess;  // the change of the loss and both rows' tolerances: improves below 0
    int64_t p_row;
    int64_t q_row;
  };
  RowBest Evaluate(int64_t row, Matrix<double>& scratch);
  void Enter(int64_t row, const RowBest& best);
  Pair BestPair();
  Pair PairOf(int64_t p_row, int64_t q_row) const;
  double Tolerance(int64_t row) const { return state_.tolerance[static_cast<size_t>(row)]; }
  int64_t Mirrored(int64_t row) const { return state_.layer.rows - 1 - row; }

  SwapState<Real>& state_;
  SwapBudget& budget_;
  std::vector<RowBest> best_;  // of every row
  // The change by each row's best, and the rows' tolerance.
  RowMinimum out_;  // by row
  RowMinimum in_;   // by mirrored row: of equals, the last row comes in
  Matrix<double> scratch_;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_BETWEEN_ROWS_H_
