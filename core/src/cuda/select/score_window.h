// A guess where the threshold of the next selection lies, kept on the device.
//
// The threshold moves little from one iteration to the next. The pass that moves
// E can therefore select what is above a window around the last threshold and
// note what is inside it; the exact threshold is then looked for among the few
// noted ones. core/src/frank_wolfe/score_window.h has the same rule.
#ifndef SPARSEFW_CORE_SRC_CUDA_SELECT_SCORE_WINDOW_H_
#define SPARSEFW_CORE_SRC_CUDA_SELECT_SCORE_WINDOW_H_

#include <cstdint>

#include "core/src/base/host_device.h"
#include "core/src/cuda/select/selection_keys.h"

namespace sparsefw::cuda {

// Scores are those of the engine's precision, as doubles.
struct ScoreWindow {
  double threshold = -1;  // the last one; below 0: none is known, every guess misses
  double spread = 0.5;    // half the window's width, relative
  // Of the running pass: entries above the window and inside it.
  unsigned long long above = 0;
  unsigned long long inside = 0;
};

// Scores below `low` are not selected, those above `high` are.
template <typename Real>
struct WindowBounds {
  Real low;
  Real high;
};

// Rounding may put a bound an ulp off: a guess is right or wrong, not exact.
template <typename Real>
SPARSEFW_HOST_DEVICE WindowBounds<Real> BoundsOf(const ScoreWindow& window) {
  return {static_cast<Real>(window.threshold * (1 - window.spread)),
          static_cast<Real>(window.threshold * (1 + window.spread))};
}

// Begins the selection of `wanted` entries where the window is right: the rest
// of them is inside. Otherwise all entries have to be looked at.
SPARSEFW_HOST_DEVICE inline void BeginInWindow(Selection& selection, const ScoreWindow& window,
                                               int64_t wanted) {
  selection = Selection{};
  if (window.threshold < 0) return;
  const auto above = static_cast<int64_t>(window.above);
  const auto inside = static_cast<int64_t>(window.inside);
  // Above a window at 0 is every score that may be selected.
  const bool none_below = window.threshold == 0;
  if (above > wanted || (above + inside < wanted && !none_below)) return;
  BeginSelection(selection, wanted - above, inside);
  selection.within = 1;
}

// What the selection found, for the next pass. `threshold`: the score of the
// threshold's key.
SPARSEFW_HOST_DEVICE inline void MoveWindow(ScoreWindow& window, const Selection& selection,
                                            double threshold) {
  constexpr double kMargin = 3;
  constexpr double kDecay = 0.7;
  constexpr double kNarrowest = 1.0 / 1024;
  constexpr double kWidest = 0.5;
  const bool found = selection.within != 0;
  const bool none = selection.threshold.key == ~uint64_t{0};
  const bool all = selection.threshold.key == 1;
  const double last = window.threshold;
  double next = threshold;
  if (none) next = last < 0 ? -1 : last * (1 + window.spread);
  if (all) next = found ? last * (1 - window.spread) : 0;
  window.above = 0;
  window.inside = 0;
  window.threshold = next;
  const double moved = last > 0 ? (next > last ? next - last : last - next) / last : kWidest;
  const double wanted = (found ? 1 : 2) * kMargin * moved;
  double spread = kDecay * window.spread;
  if (spread < wanted) spread = wanted;
  if (spread < kNarrowest) spread = kNarrowest;
  window.spread = spread < kWidest ? spread : kWidest;
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SELECT_SCORE_WINDOW_H_
