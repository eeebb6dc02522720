// Swap refinement between rows, where the whole matrix is one group.
#ifndef SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_BETWEEN_ROWS_H_
#define SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_BETWEEN_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
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
  BetweenRows(SwapState<Real>& state, SwapBudget& budget)
      : state_(state),
        budget_(budget),
        best_(static_cast<size_t>(state.layer.rows)),
        out_(state.layer.rows),
        in_(state.layer.rows),
        scratch_(2, state.layer.stride()) {}

  // Takes the rows' best terms anew: after rows were changed elsewhere.
  absl::Status Update(const ParallelContext& context) {
    const RowBlocks blocks{state_.layer.rows, 16};
    absl::Status status = context.ForEach(blocks.count(), [&](int64_t block) {
      Matrix<double> scratch(2, state_.layer.stride());
      for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
        best_[static_cast<size_t>(row)] = Evaluate(row, scratch);
      }
    });
    if (!status.ok()) return status;
    for (int64_t row = 0; row < state_.layer.rows; ++row) {
      Enter(row, best_[static_cast<size_t>(row)]);
    }
    return absl::OkStatus();
  }

  // Exchanges until none between rows lowers the loss or the budget is spent. Marks the rows that
  // it touches in `changed`.
  SwapTally Exchange(std::vector<uint8_t>& changed) {
    SwapTally tally;
    while (tally.swaps % kLookEvery != 0 || !budget_.Spent()) {
      const Pair pair = BestPair();
      const auto p_row = static_cast<size_t>(pair.p_row);
      const auto q_row = static_cast<size_t>(pair.q_row);
      if (!(pair.excess < 0)) break;
      tally.loss_change += best_[p_row].out.value + best_[q_row].in.value;
      state_.Move(pair.p_row, best_[p_row].out.col);
      state_.Move(pair.q_row, best_[q_row].in.col);
      changed[p_row] = changed[q_row] = 1;
      Enter(pair.p_row, Evaluate(pair.p_row, scratch_));
      Enter(pair.q_row, Evaluate(pair.q_row, scratch_));
      ++tally.swaps;
    }
    return tally;
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr int64_t kLookEvery = 64;  // exchanges between two looks at the budget

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

  RowBest Evaluate(int64_t row, Matrix<double>& scratch) {
    double* out = scratch.row(0);
    double* in = scratch.row(1);
    KernelsOfSwaps<Real>().swap_terms(state_.Row(row), out, in);
    const double* cheapest = std::min_element(out, out + state_.layer.cols);
    // The last of equals: from the end, and then the first that is least.
    const auto from_end = std::make_reverse_iterator(in + state_.layer.cols);
    const auto useful = std::min_element(from_end, std::make_reverse_iterator(in));
    return {{*cheapest, cheapest - out}, {*useful, std::make_reverse_iterator(in) - useful - 1}};
  }

  void Enter(int64_t row, const RowBest& best) {
    best_[static_cast<size_t>(row)] = best;
    out_.Set(row, best.out.value + Tolerance(row));
    in_.Set(Mirrored(row), best.in.value + Tolerance(row));
  }

  // Where one row has both the cheapest p and the most useful q, one of the two
  // is the second best: the row is taken out of each tree for a moment.
  Pair BestPair() {
    const int64_t p_row = out_.Least();
    const int64_t q_row = Mirrored(in_.Least());
    if (p_row != q_row) return PairOf(p_row, q_row);
    const RowBest best = best_[static_cast<size_t>(p_row)];
    out_.Set(p_row, kInfinity);
    const int64_t other_p_row = out_.Least();
    in_.Set(Mirrored(q_row), kInfinity);
    const int64_t other_q_row = Mirrored(in_.Least());
    Enter(p_row, best);
    const Pair other_p = PairOf(other_p_row, q_row);
    const Pair other_q = PairOf(p_row, other_q_row);
    return other_p.excess < other_q.excess ? other_p : other_q;
  }

  Pair PairOf(int64_t p_row, int64_t q_row) const {
    if (p_row == q_row) return {kInfinity, p_row, q_row};  // there is one row only
    return {out_.Value(p_row) + in_.Value(Mirrored(q_row)), p_row, q_row};
  }

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
