// The threshold of a whole matrix's budget, found among the scores in a window around where it is
// expected. Rows with budgets of their own take select_largest (core/src/cpu/linalg/kernels.h).
#ifndef SPARSEFW_CORE_SRC_CPU_SELECT_THRESHOLD_H_
#define SPARSEFW_CORE_SRC_CPU_SELECT_THRESHOLD_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "core/src/select/group_select.h"

namespace sparsefw::cpu {

// The scores of some rows, by a window (low, high].
template <typename Real>
struct WindowScores {
  int64_t above = 0;
  std::vector<MatrixCandidate<Real>> inside;

  void Clear() {
    above = 0;
    inside.clear();
  }
};

template <typename Real>
struct Threshold {
  // The least score selected. 0: fewer positive ones are there than wanted. The window's upper end
  // where no score inside is selected.
  Real value = 0;
  bool beyond = false;  // as many as are wanted lie above the window: `value` is its end
  bool any = false;     // of the scores inside, those up to `last` are selected
  MatrixCandidate<Real> last = {};  // the last one selected

  bool Selects(const MatrixCandidate<Real>& candidate) const {
    return any && !Better(last, candidate);
  }
};

// Where the `free` largest positive scores end; nothing: not in the window. A `low` of 0 says that
// no positive score lies below it. Every block has a member `scores`. `merged` is scratch.
template <typename Real, typename Blocks>
std::optional<Threshold<Real>> FindThreshold(const Blocks& blocks, int64_t free, Real low,
                                             Real high,
                                             std::vector<MatrixCandidate<Real>>& merged) {
  int64_t wanted = free;
  merged.clear();
  for (const auto& block : blocks) {
    wanted -= block.scores.above;
    merged.insert(merged.end(), block.scores.inside.begin(), block.scores.inside.end());
  }
  const int64_t inside = std::ssize(merged);
  const bool all = low == 0 && inside < wanted;
  if (wanted < 0 || (inside < wanted && !all)) return std::nullopt;
  Threshold<Real> threshold{.value = all ? 0 : high, .beyond = wanted == 0};
  const int64_t count = std::min(wanted, inside);
  if (count == 0) return threshold;
  std::nth_element(merged.begin(), merged.begin() + count - 1, merged.end(), BetterFirst());
  threshold.any = true;
  threshold.last = merged[static_cast<size_t>(count - 1)];
  if (!all) threshold.value = threshold.last.key;
  return threshold;
}

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SELECT_THRESHOLD_H_
