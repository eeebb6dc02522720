#include "core/src/cpu/swaps/swap_between_rows.h"

#include <algorithm>
#include <limits>

namespace sparsefw::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kLookEvery = 64;  // exchanges between two looks at the budget

}  // namespace

template <typename Real>
BetweenRows<Real>::BetweenRows(SwapState<Real>& state, SwapBudget& budget)
    : state_(state),
      budget_(budget),
      best_(static_cast<size_t>(state.layer.rows)),
      out_(state.layer.rows),
      in_(state.layer.rows),
      scratch_(2, state.layer.stride()) {}

template <typename Real>
typename BetweenRows<Real>::RowBest BetweenRows<Real>::Evaluate(int64_t row,
                                                                Matrix<double>& scratch) {
  double* out = scratch.row(0);
  double* in = scratch.row(1);
  KernelsOfSwaps<Real>().swap_terms(state_.Row(row), out, in);
  const double* cheapest = std::min_element(out, out + state_.layer.cols);
  // The last of equals: from the end, and then the first that is least.
  const auto from_end = std::make_reverse_iterator(in + state_.layer.cols);
  const auto useful = std::min_element(from_end, std::make_reverse_iterator(in));
  return {{*cheapest, cheapest - out}, {*useful, std::make_reverse_iterator(in) - useful - 1}};
}

template <typename Real>
void BetweenRows<Real>::Enter(int64_t row, const RowBest& best) {
  best_[static_cast<size_t>(row)] = best;
  out_.Set(row, best.out.value + Tolerance(row));
  in_.Set(Mirrored(row), best.in.value + Tolerance(row));
}

template <typename Real>
absl::Status BetweenRows<Real>::Update(const ParallelContext& context) {
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

template <typename Real>
typename BetweenRows<Real>::Pair BetweenRows<Real>::PairOf(int64_t p_row, int64_t q_row) const {
  if (p_row == q_row) return {kInfinity, p_row, q_row};  // there is one row only
  return {out_.Value(p_row) + in_.Value(Mirrored(q_row)), p_row, q_row};
}

// Where one row has both the cheapest p and the most useful q, one of the two
// is the second best: the row is taken out of each tree for a moment.
template <typename Real>
typename BetweenRows<Real>::Pair BetweenRows<Real>::BestPair() {
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

template <typename Real>
SwapTally BetweenRows<Real>::Exchange(std::vector<uint8_t>& changed) {
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

template class BetweenRows<float>;
template class BetweenRows<double>;

}  // namespace sparsefw::cpu
