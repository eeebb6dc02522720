// A guess where the threshold between selected and unselected scores lies.
//
// The threshold moves little from one iteration to the next. One pass can
// therefore mark everything above a window around the last threshold and
// collect the few scores inside it, among which the exact one is then found.
// The selection does not depend on the guess, only the time it takes and the
// order in which an engine sums over the selected. On the host and in kernels.
#ifndef SPARSEFW_CORE_SRC_FRANK_WOLFE_SCORE_WINDOW_H_
#define SPARSEFW_CORE_SRC_FRANK_WOLFE_SCORE_WINDOW_H_

#include <limits>

#include "core/src/base/host_device.h"

namespace sparsefw {

template <typename Real>
struct ScoreWindow {
  // Half a window of half the threshold holds no more than a few percent of the
  // scores; the next move is seldom over three times the last one.
  static constexpr Real kWidest = static_cast<Real>(0.5);
  static constexpr Real kNarrowest = static_cast<Real>(1) / 1024;
  static constexpr Real kMargin = 3;
  static constexpr Real kDecay = static_cast<Real>(0.7);
  static constexpr Real kNone = std::numeric_limits<Real>::max();

  Real threshold = -1;    // the last one, >= 0; below 0: none is known
  Real spread = kWidest;  // half the window's width, relative

  SPARSEFW_HOST_DEVICE bool known() const { return threshold >= 0; }
  // Empty and above every score before the first Move: nothing matches it.
  SPARSEFW_HOST_DEVICE Real low() const { return known() ? threshold * (1 - spread) : kNone; }
  SPARSEFW_HOST_DEVICE Real high() const { return known() ? threshold * (1 + spread) : kNone; }

  // The threshold turned out to be `next` >= 0 (0: every positive score was
  // selected). `found`: it was in the window.
  SPARSEFW_HOST_DEVICE void Move(Real next, bool found) {
    const Real distance = next > threshold ? next - threshold : threshold - next;
    const Real moved = threshold > 0 ? distance / threshold : kWidest;
    const Real wanted = found ? kMargin * moved : 2 * kMargin * moved;
    const Real narrower = kDecay * spread;
    spread = narrower < wanted ? wanted : narrower;
    if (spread < kNarrowest) spread = kNarrowest;
    if (spread > kWidest) spread = kWidest;
    threshold = next;
  }
};

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_FRANK_WOLFE_SCORE_WINDOW_H_
