#include "core/src/cpu/swaps/swap_row.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace sparsefw::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kLookEvery = 16;  // candidates between two looks at the budget

}  // namespace

template <typename Real>
RowSwapper<Real>::RowSwapper(SwapState<Real>& state, SwapBudget& budget)
    : state_(state), budget_(budget), out_(1, state.layer.stride()), in_(1, state.layer.stride()) {}

template <typename Real>
SwapTally RowSwapper<Real>::Refine(int64_t row) {
  SwapTally tally;
  const bool whole_row = state_.groups.group_cols == state_.layer.cols;
  bool moved = true;
  while (moved && !budget_.Spent()) {
    moved = whole_row ? SweepRow(row, tally) : SweepGroups(row, tally);
  }
  return tally;
}

template <typename Real>
void RowSwapper<Real>::UpdateTerms(int64_t row) {
  KernelsOfSwaps<Real>().swap_terms(state_.Row(row), out_.data(), in_.data());
}

template <typename Real>
void RowSwapper<Real>::CollectCandidates(int64_t row) {
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
template <typename Real>
bool RowSwapper<Real>::MayImprove(int64_t row, int64_t p) const {
  const double together =
      2 * std::abs(state_.Weight(row, p)) * state_.reach[static_cast<size_t>(p)] * largest_norm_;
  return !(out_(0, p) + least_in_ - together >= -state_.tolerance[static_cast<size_t>(row)]);
}

template <typename Real>
bool RowSwapper<Real>::SweepRow(int64_t row, SwapTally& tally) {
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
    least_in_ = KernelsOfSwaps<Real>().best_partner(layer.words, in_.data(), weights, gram_row, 0);
    largest_norm_ =
        std::max(largest_norm_, std::abs(state_.Weight(row, p)) * std::sqrt(state_.diagonal(0, p)));
    ++tally.swaps;
    tally.loss_change += change;
    moved = true;
  }
  return moved;
}

template <typename Real>
bool RowSwapper<Real>::SweepGroups(int64_t row, SwapTally& tally) {
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

template <typename Real>
bool RowSwapper<Real>::SwapBestOfGroup(int64_t row, int64_t first, SwapTally& tally) {
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

template class RowSwapper<float>;
template class RowSwapper<double>;

}  // namespace sparsefw::cpu
