// Swap refinement within the rows: until no exchange inside a row lowers the loss.
#ifndef SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_ROW_H_
#define SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_ROW_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "core/src/cpu/swaps/swap_state.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Sweeps over a row: for every kept p, those that cost least on their own
// first, the best of all q is exchanged for it if that lowers the loss. A sweep
// that exchanges nothing has tried every pair, or excluded it by the bound
//
//   out_p + min_q in_q - 2 |w_p| reach_p max_q |w_q| sqrt(G_qq) >= -tolerance
//
// and so proves that no exchange within the row improves. Rows of n:m groups
// are swept group by group, each tried pair by pair.
//
// Ties: of equal changes the one that keeps the higher index, in p and in q.
// Memory: two rows of float64 and an index list.
// Cost: a sweep costs (kept, movable) * cols multiply-adds, in float64.
template <typename Real>
class RowSwapper {
 public:
  RowSwapper(SwapState<Real>& state, SwapBudget& budget)
      : state_(state),
        budget_(budget),
        out_(1, state.layer.stride()),
        in_(1, state.layer.stride()) {}

  // Ends early only where the budget is spent.
  SwapTally Refine(int64_t row) {
    SwapTally tally;
    const bool whole_row = state_.groups.group_cols == state_.layer.cols;
    bool moved = true;
    while (moved && !budget_.Spent()) {
      moved = whole_row ? SweepRow(row, tally) : SweepGroups(row, tally);
    }
    return tally;
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr size_t kLookEvery = 16;  // candidates between two looks at the budget

  bool SweepRow(int64_t row, SwapTally& tally) {
    const ScaledLayer<Real>& layer = state_.layer;
    const Real* weights = layer.weights.row(row);
    CollectCandidates(row);
    bool moved = false;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (i % kLookEvery == 0 && budget_.Spent()) return moved;
      const int64_t p = candidates_[i];
      if (!MayImprove(row, p)) continue;
      const double factor = 2 * state_.Weight(row, p);
      const Real* gram_row = layer.gram.row(p);
      const double partner =
          KernelsOfSwaps<Real>().best_partner(layer.words, in_.data(), weights, gram_row, factor);
      const double change = out_(0, p) + partner;
      if (!(change < -state_.tolerance[static_cast<size_t>(row)])) continue;
      const int64_t q = KernelsOfSwaps<Real>().find_partner(layer.words, in_.data(), weights,
                                                            gram_row, factor, partner);
      state_.SwapWithinRow(row, p, q);
      UpdateTerms(row);
      least_in_ =
          KernelsOfSwaps<Real>().best_partner(layer.words, in_.data(), weights, gram_row, 0);
      largest_norm_ = std::max(largest_norm_,
                               std::abs(state_.Weight(row, p)) * std::sqrt(state_.diagonal(0, p)));
      ++tally.swaps;
      tally.loss_change += change;
      moved = true;
    }
    return moved;
  }

  bool SweepGroups(int64_t row, SwapTally& tally) {
    UpdateTerms(row);
    bool moved = false;
    for (int64_t first = 0; first < state_.layer.cols; first += state_.groups.group_cols) {
      while (SwapBestOfGroup(row, first, tally)) {
        moved = true;
        if (budget_.Spent()) return moved;
      }
    }
    return moved;
  }

  void UpdateTerms(int64_t row) {
    KernelsOfSwaps<Real>().swap_terms(state_.Row(row), out_.data(), in_.data());
  }

  void CollectCandidates(int64_t row) {
    UpdateTerms(row);
    least_in_ = kInfinity;
    largest_norm_ = 0;
    for (int64_t col = 0; col < state_.layer.cols; ++col) {
      if (in_(0, col) == kInfinity) continue;
      least_in_ = std::min(least_in_, in_(0, col));
      const double square = state_.Weight(row, col) * state_.Weight(row, col);
      largest_norm_ = std::max(largest_norm_, square * state_.diagonal(0, col));
    }
    largest_norm_ = std::sqrt(largest_norm_);
    candidates_.clear();
    for (int64_t col = 0; col < state_.layer.cols; ++col) {
      if (out_(0, col) != kInfinity && MayImprove(row, col)) candidates_.push_back(col);
    }
    std::sort(candidates_.begin(), candidates_.end(), [&](int64_t a, int64_t b) {
      return std::tuple(out_(0, a), a) < std::tuple(out_(0, b), b);
    });
  }

  // Written so that NaN, infinity times 0, means that it may.
  bool MayImprove(int64_t row, int64_t p) const {
    const double together =
        2 * std::abs(state_.Weight(row, p)) * state_.reach[static_cast<size_t>(p)] * largest_norm_;
    return !(out_(0, p) + least_in_ - together >= -state_.tolerance[static_cast<size_t>(row)]);
  }

  bool SwapBestOfGroup(int64_t row, int64_t first, SwapTally& tally) {
    const int64_t end = first + state_.groups.group_cols;
    double best = -state_.tolerance[static_cast<size_t>(row)];
    int64_t best_p = -1;
    int64_t best_q = -1;
    for (int64_t p = first; p < end; ++p) {
      if (out_(0, p) == kInfinity) continue;
      const double factor = 2 * state_.Weight(row, p);
      for (int64_t q = end - 1; q >= first; --q) {
        if (in_(0, q) == kInfinity) continue;
        const double together =
            factor * state_.Weight(row, q) * static_cast<double>(state_.layer.gram(p, q));
        const double change = out_(0, p) + in_(0, q) - together;
        if (change < best) std::tie(best, best_p, best_q) = std::tuple(change, p, q);
      }
    }
    if (best_p < 0) return false;
    state_.SwapWithinRow(row, best_p, best_q);
    UpdateTerms(row);
    ++tally.swaps;
    tally.loss_change += best;
    return true;
  }

  SwapState<Real>& state_;
  SwapBudget& budget_;
  Matrix<double> out_;
  Matrix<double> in_;
  std::vector<int64_t> candidates_;
  double least_in_ = 0;      // min_q in_q
  double largest_norm_ = 0;  // max_q |w_q| sqrt(G_qq), at least
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_ROW_H_
