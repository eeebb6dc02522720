// The pass of a selection that rests on a guessed window, kept on the device:
// core/src/frank_wolfe/score_window.h has the rule of the window.
#ifndef SPARSEFW_CORE_SRC_CUDA_SELECT_SCORE_WINDOW_H_
#define SPARSEFW_CORE_SRC_CUDA_SELECT_SCORE_WINDOW_H_

#include <cstdint>

#include "core/src/base/host_device.h"
#include "core/src/cuda/select/selection_keys.h"
#include "core/src/frank_wolfe/score_window.h"

namespace sparsefw::cuda {

// The window is kept in doubles whatever the engine's precision: a bound may be
// an ulp off for the scores, and a guess is right or wrong, not exact.
struct WindowPass {
  ScoreWindow<double> window;
  // Entries of the running pass above the window and inside it.
  unsigned long long above = 0;
  unsigned long long inside = 0;
};

// Scores below `low` are not selected, those above `high` are.
template <typename Real>
struct WindowBounds {
  Real low;
  Real high;
};

template <typename Real>
SPARSEFW_HOST_DEVICE WindowBounds<Real> BoundsOf(const ScoreWindow<double>& window) {
  if (!window.known()) return {ScoreWindow<Real>::kNone, ScoreWindow<Real>::kNone};
  return {static_cast<Real>(window.low()), static_cast<Real>(window.high())};
}

// Begins the selection of `wanted` entries where the window is right: the rest
// of them is inside. Otherwise all entries have to be looked at.
SPARSEFW_HOST_DEVICE inline void BeginInWindow(Selection& selection, const WindowPass& pass,
                                               int64_t wanted) {
  selection = Selection{};
  if (!pass.window.known()) return;
  const auto above = static_cast<int64_t>(pass.above);
  const auto inside = static_cast<int64_t>(pass.inside);
  // Above a window at 0 is every score that may be selected.
  const bool none_below = pass.window.threshold == 0;
  if (above > wanted || (above + inside < wanted && !none_below)) return;
  BeginSelection(selection, wanted - above, inside);
  selection.within = 1;
}

// The result of the selection, for the next pass. `threshold`: the score of the threshold's key.
SPARSEFW_HOST_DEVICE inline void MoveWindow(WindowPass& pass, const Selection& selection,
                                            double threshold) {
  ScoreWindow<double>& window = pass.window;
  pass.above = 0;
  pass.inside = 0;
  const bool found = selection.within != 0;
  const bool none = selection.threshold.key == ~uint64_t{0};
  const bool all = selection.threshold.key == 1;
  if (none && !window.known()) return;
  double next = threshold;
  if (none) next = window.high();
  if (all) next = found ? window.low() : 0;
  window.Move(next, found);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SELECT_SCORE_WINDOW_H_
