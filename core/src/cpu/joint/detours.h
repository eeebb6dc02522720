// Ways out of a local optimum of the joint search within one row.
#ifndef SPARSEFW_CORE_SRC_CPU_JOINT_DETOURS_H_
#define SPARSEFW_CORE_SRC_CPU_JOINT_DETOURS_H_

#include <cstdint>
#include <vector>

#include "core/src/cpu/joint/tableau.h"
#include "core/src/cpu/swaps/swap_state.h"
#include "sparsefw/pattern.h"

namespace sparsefw::cpu {

// A detour of depth k: k columns more than may be kept go in, one after the other, each
// the one that gains most by then; then k go out of the groups that have too many, each the one
// that costs least. Or the other way round: out first, in afterwards. So several columns
// change at once of which no single exchange pays. It stands if the loss is lower by more
// than the tolerance and rounding, and is undone otherwise. Known for feature selection as
// oscillating search (Somol and Pudil 2000).
//
// Ties: the lower position. Keeps its scratch; not thread-safe.
template <typename Real>
class Detours {
 public:
  // Both outlive this object.
  Detours(Tableau<Real>& tableau, const Groups& groups, SwapBudget& budget)
      : tableau_(tableau), groups_(groups), budget_(budget) {}

  // The first of kJointDetours, in either order, that pays; of the tableau nothing is
  // pending, before and after. Adds to `exchanges` how many columns it took in.
  // Cost: 2 (2 + 4 + 8 + 16) sweeps, where none pays
  bool Take(double tolerance, int64_t& exchanges);

 private:
  bool Try(int64_t depth, bool in_first, double tolerance);
  bool Move(int64_t depth, bool in_first);
  int64_t Best(bool entering) const;
  int64_t BestOfOpen(bool entering) const;
  size_t GroupOf(int64_t position) const {
    return static_cast<size_t>(tableau_.column(position) / groups_.group_cols);
  }

  Tableau<Real>& tableau_;
  const Groups& groups_;
  SwapBudget& budget_;
  std::vector<int32_t> open_;    // of every group: columns too many, or too few
  std::vector<uint8_t> before_;  // of every position: whether it was inside
  std::vector<Real> column_;
  double moved_ = 0;  // sum of what the moves gained and cost
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_JOINT_DETOURS_H_
