// What is known of a row from one epoch to the next: how far it moves, and where its threshold
// lies. The constants of screening are here, with what they were measured by
// (docs/benchmarks/cpu-log.md).
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_ROW_PLAN_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_ROW_PLAN_H_

#include <algorithm>
#include <cstdint>

#include "core/src/cpu/linalg/kernels.h"
#include "core/src/cpu/screen/column_choice.h"

namespace sparsefw::cpu {

// Lengths in iterations. Before the first epoch the bound admits half of the columns. An epoch
// that does not pay is tried again after as many.
inline constexpr int64_t kFirstEpoch = 50;
// Epochs double while no more than such a share of the rows had to begin anew (section 10: 5.25
// instead of 4.35 s with 400 and growth by half).
inline constexpr int64_t kLongestEpoch = 800;
inline constexpr double kFewRestarts = 0.5;
// An epoch pays with at most such a share of the columns active. Per row at alpha 0.75, 0.4 and 0.3
// are slower, since epochs begin later; at alpha 0.5 they are 5 % faster (section 12).
inline constexpr double kLargestShare = 0.5;
// And with so many values a weight for rows and, where rows keep what they gather, rows of G: with
// 6, 9 and 16 the first epoch begins at iteration 600, 350 and 150 (section 10). Iterations ask for
// `kToggledShare` of the rows of G in the first epoch.
inline constexpr int64_t kValuesPerWeight = 9;
inline constexpr double kToggledShare = 0.65;
// What one holds after all, for estimates: rows that begin anew have more columns than those that
// were counted, and vectors room. At 2048x2048, one budget for all rows, 60 %, alpha = 0.9: 11.3
// values a weight (section 11), with saved states of rows that are gone since (299 and 294 MB for
// the whole solve).
inline constexpr int64_t kHalfValuesHeldPerWeight = 23;

// Room beside the largest values seen. A wide window costs little, a row that begins
// anew as much as an epoch of it (section 10: 1.03 and 1.5 are 3 to 5 % slower).
inline constexpr double kRadiusRoom = 1.1;
inline constexpr double kWindowRoom = 2;
inline constexpr double kGrowth = 1.2;
// Before anything is known: the radius in moves of one step (section 10: with 1.0 every row begins
// anew twice), the window in thresholds, of one row's budget and of the matrix'.
inline constexpr double kFirstRadius = 1.4;
inline constexpr double kFirstWindow = 0.1;
inline constexpr double kFirstSharedWindow = 0.02;
inline constexpr double kNarrowestWindow = 1e-3;

// Without padding: its bytes are written as they are.
template <typename Real>
struct RowPlan {
  double radius = 0;   // 0: not known yet
  Real threshold = 0;  // theta where the row began; rows with a budget of their own
  Real below = -1;     // half widths of its window; below 0: not known yet
  Real above = -1;
  Real seen_below = 0;  // what theta did
  Real seen_above = 0;
  ThresholdGuess<Real> last;
  Real unused = 0;
  int64_t restarts = 0;  // in this epoch

  Window<Real> window() const { return {threshold - below, threshold + above}; }

  void Begin(Real theta, double first_window) {
    threshold = theta;
    if (below < 0) below = above = static_cast<Real>(first_window) * theta;
    last.threshold = theta;
    seen_below = seen_above = 0;
  }

  // False: `next` is outside the window.
  bool Follow(Real next) {
    seen_below = std::max(seen_below, threshold - next);
    seen_above = std::max(seen_above, next - threshold);
    return window().Holds(next);
  }

  // Widens the window to the thresholds that were seen.
  void Widen() {
    const auto growth = static_cast<Real>(kGrowth);
    if (seen_below > below) below = growth * seen_below;
    if (seen_above > above) above = growth * seen_above;
  }

  // For the next epoch, in which moves are `shrink` times as large.
  void AdaptWindow(double shrink) {
    const Real least = static_cast<Real>(kNarrowestWindow) * threshold;
    const auto room = static_cast<Real>(kWindowRoom * shrink);
    below = std::max(least, room * seen_below);
    above = std::max(least, room * seen_above);
  }
};
static_assert(sizeof(RowPlan<float>) == 48 && sizeof(RowPlan<double>) == 80);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_ROW_PLAN_H_
