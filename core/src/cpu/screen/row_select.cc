#include "core/src/cpu/screen/row_select.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <optional>

#include "core/src/cpu/linalg/kernels.h"
#include "core/src/cpu/screen/screen_kernels.h"

namespace sparsefw::cpu {
namespace {

void SetBit(uint64_t* words, int64_t lane) { words[lane >> 6] |= uint64_t{1} << (lane & 63); }

// Adds to the vertex the best `wanted` >= 1 of the lanes in `bits`; returns the least score
// of them.
template <typename Real>
Real TakeBest(const uint64_t* bits, int64_t inside, int64_t wanted, ActiveRow<Real>& row,
              SelectScratch<Real>& scratch) {
  const Real* const scores = scratch.scores.data();
  uint64_t* const vertex = row.vertex();
  if (inside <= kRanked) {
    Real found[kRanked + 64];
    uint32_t lanes[kRanked];
    int64_t count = 0;
    for (int64_t word = 0; word < row.words(); ++word) {
      ForEachBit(bits[word], word, [&](int64_t lane) {
        found[count] = scores[lane];
        lanes[count++] = static_cast<uint32_t>(lane);
      });
    }
    Real least = 0;
    const uint64_t best = BestOf(found, count, wanted, &least);
    ForEachBit(best, 0, [&](int64_t i) { SetBit(vertex, lanes[i]); });
    return least;
  }
  std::vector<Candidate<Real>>& candidates = scratch.candidates;
  candidates.clear();
  for (int64_t word = 0; word < row.words(); ++word) {
    ForEachBit(bits[word], word, [&](int64_t lane) {
      candidates.push_back({scores[lane], static_cast<uint32_t>(lane)});
    });
  }
  const auto last = candidates.begin() + wanted - 1;
  std::nth_element(candidates.begin(), last, candidates.end(), Better<Real>);
  for (auto it = candidates.begin(); it <= last; ++it) SetBit(vertex, it->col);
  return last->key;
}

template <typename Real>
Real LeastOf(const uint64_t* bits, int64_t words, const Real* scores) {
  Real least = std::numeric_limits<Real>::max();
  for (int64_t word = 0; word < words; ++word) {
    ForEachBit(bits[word], word, [&](int64_t lane) { least = std::min(least, scores[lane]); });
  }
  return least;
}

// The guess missed: `high` is below the threshold, or `low` above it. Among those beyond.
template <typename Real>
Real SelectBeyond(ActiveRow<Real>& row, int64_t over, int64_t inside,
                  SelectScratch<Real>& scratch) {
  uint64_t* const above = scratch.above.data();
  uint64_t* const window = scratch.window.data();
  if (over > row.capacity) {
    std::fill_n(row.vertex(), row.words(), 0);
    return row.capacity > 0 ? TakeBest(above, over, row.capacity, row, scratch)
                            : std::numeric_limits<Real>::max();
  }
  // Positive ones below the window.
  const Real* const scores = scratch.scores.data();
  int64_t below = 0;
  for (int64_t word = 0; word < row.words(); ++word) {
    const uint64_t taken = above[word] | window[word];
    row.vertex()[word] = taken;
    uint64_t positive = 0;
    const int64_t count = std::min<int64_t>(64, row.lanes() - word * 64);
    for (int64_t i = 0; i < count; ++i) {
      positive |= uint64_t{scores[word * 64 + i] > 0} << i;
    }
    window[word] = positive & ~taken;
    below += std::popcount(window[word]);
  }
  const int64_t wanted = std::min(row.capacity - over - inside, below);
  const Real least = wanted > 0 ? TakeBest(window, below, wanted, row, scratch) : 0;
  return over + inside + wanted == row.capacity ? least : 0;
}

}  // namespace

template <typename Real>
Real AdvanceAndSelect(const ScreenedLayer<Real>& layer, double step, ActiveRow<Real>& row,
                      ScoreWindow<Real>& guess, SelectScratch<Real>& scratch) {
  uint64_t* const above = scratch.above.data();
  uint64_t* const window = scratch.window.data();
  row.Advance(layer, step, guess.low(), guess.high(), scratch.scores.data(), above, window);
  const int64_t over = CountBits(above, row.words());
  const int64_t inside = CountBits(window, row.words());
  // Nothing positive lies below a window that begins at 0.
  const bool all = guess.low() == 0 && over + inside <= row.capacity;
  if (over > row.capacity || (over + inside < row.capacity && !all)) {
    const Real threshold = SelectBeyond(row, over, inside, scratch);
    guess.Move(threshold, false);
    return threshold;
  }
  std::copy_n(above, row.words(), row.vertex());
  const int64_t count = std::min(row.capacity - over, inside);
  Real threshold = 0;
  if (count > 0) {
    threshold = TakeBest(window, inside, count, row, scratch);
  } else if (over > 0) {
    threshold = LeastOf(above, row.words(), scratch.scores.data());
  }
  if (all && over + inside < row.capacity) threshold = 0;
  guess.Move(threshold, true);
  return threshold;
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

#define SPARSEFW_INSTANTIATE(Real)                                                              \
  template Real AdvanceAndSelect(const ScreenedLayer<Real>&, double, ActiveRow<Real>&,          \
                                 ScoreWindow<Real>&, SelectScratch<Real>&);                     \
  template void AdvanceAndSelectGroups(const ScreenedLayer<Real>&, const Groups&, double,       \
                                       ActiveRow<Real>&, SelectScratch<Real>&)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cpu
