// A guess where the threshold between selected and unselected scores lies.
//
// The threshold moves little from one iteration to the next. One pass can
// therefore mark everything above a window around the last threshold and
// collect the few scores inside it, among which the exact one is then found.
#ifndef SPARSEFW_CORE_SRC_FRANK_WOLFE_SCORE_WINDOW_H_
#define SPARSEFW_CORE_SRC_FRANK_WOLFE_SCORE_WINDOW_H_

#include <algorithm>
#include <cmath>
#include <limits>

namespace sparsefw::cpu {

template <typename Real>
class ScoreWindow {
 public:
  // Empty and above everything before the first Hit: nothing matches it.
  Real low() const { return threshold_ < 0 ? kNone : threshold_ * (1 - spread_); }
  Real high() const { return threshold_ < 0 ? kNone : threshold_ * (1 + spread_); }

  // The threshold turned out to be `threshold` >= 0 (0: every positive score
  // was selected), found in the window or not.
  void Update(Real threshold, bool found) {
    const Real moved = threshold_ > 0 ? std::abs(threshold - threshold_) / threshold_ : kWidest;
    spread_ = std::max(found ? kMargin * moved : 2 * kMargin * moved, kDecay * spread_);
    spread_ = std::clamp(spread_, kNarrowest, kWidest);
    threshold_ = threshold;
  }

 private:
  static constexpr Real kNone = std::numeric_limits<Real>::max();
  // The next move is seldom over three times the last one, nor does a window of
  // half the threshold hold more than a few percent of the scores.
  static constexpr Real kMargin = 3;
  static constexpr Real kDecay = static_cast<Real>(0.7);
  static constexpr Real kNarrowest = static_cast<Real>(1) / 1024;
  static constexpr Real kWidest = static_cast<Real>(0.5);

  Real threshold_ = -1;
  Real spread_ = kWidest;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_FRANK_WOLFE_SCORE_WINDOW_H_
