#include "core/src/cpu/joint/detours.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "core/src/cpu/joint/joint_kernels.h"
#include "sparsefw/backend.h"

namespace sparsefw::cpu {
namespace {

// Share of what the moves of a detour change together, which is the difference of larger numbers.
template <typename Real>
constexpr double kNoise = sizeof(Real) == sizeof(float) ? 1e-5 : 1e-12;

}  // namespace

template <typename Real>
bool Detours<Real>::Take(double tolerance, int64_t& exchanges) {
  static_assert(2 * *std::rbegin(kJointDetours) <= Tableau<Real>::kPending,
                "a detour is undone before it is flushed");
  column_.resize(static_cast<size_t>(tableau_.stride() + kKernelSlack));
  before_.resize(static_cast<size_t>(tableau_.size()));
  for (int64_t i = 0; i < tableau_.size(); ++i) {
    before_[static_cast<size_t>(i)] = tableau_.inside(i) ? 1 : 0;
  }
  for (const int depth : kJointDetours) {
    for (const bool in_first : {true, false}) {
      if (budget_.Spent()) return false;
      if (!Try(depth, in_first, tolerance)) continue;
      for (int64_t i = 0; i < tableau_.size(); ++i) {
        exchanges += tableau_.inside(i) && before_[static_cast<size_t>(i)] == 0 ? 1 : 0;
      }
      return true;
    }
  }
  return false;
}

template <typename Real>
bool Detours<Real>::Try(int64_t depth, bool in_first, double tolerance) {
  const double before = tableau_.loss();
  tableau_.Mark();
  moved_ = 0;
  const bool whole = Move(depth, in_first);
  if (!whole || !(before - tableau_.loss() > tolerance + kNoise<Real> * moved_)) {
    tableau_.Restore();
    return false;
  }
  tableau_.Keep();
  tableau_.Flush();
  return true;
}

// False where there is nothing that could go.
template <typename Real>
bool Detours<Real>::Move(int64_t depth, bool in_first) {
  open_.assign(static_cast<size_t>(groups_.groups_per_row), 0);
  for (const bool back : {false, true}) {
    const bool entering = in_first != back;
    for (int64_t n = 0; n < depth; ++n) {
      const bool anywhere = !back || groups_.groups_per_row == 1;
      const int64_t position = anywhere ? Best(entering) : BestOfOpen(entering);
      if (position < 0) return false;
      open_[GroupOf(position)] += back ? -1 : 1;
      moved_ += tableau_.Change(position);
      tableau_.Fetch(position, column_.data());
      tableau_.Sweep(position, column_.data());
    }
  }
  return true;
}

// The column outside that gains most, or the one inside that costs least; -1 where there
// is none.
template <typename Real>
int64_t Detours<Real>::Best(bool entering) const {
  const Real* targets = tableau_.targets();
  if (!entering) {
    return Cheapest(
        Inside<Real>{tableau_.size(), targets, tableau_.diagonals(), tableau_.floors()});
  }
  // Nothing leaves: step and inverse are 0, and any finite column will do.
  const Leaving<Real> nothing = {.size = tableau_.size(),
                                 .column = targets,
                                 .targets = targets,
                                 .diagonals = tableau_.diagonals(),
                                 .floors = tableau_.floors()};
  return FindGain(nothing, BestGain(nothing));
}

template <typename Real>
int64_t Detours<Real>::BestOfOpen(bool entering) const {
  int64_t best = -1;
  double least = 0;
  for (int64_t i = 0; i < tableau_.size(); ++i) {
    if (open_[GroupOf(i)] == 0) continue;
    const bool usable =
        entering ? tableau_.diagonals()[i] > tableau_.floors()[i] : tableau_.inside(i);
    if (!usable) continue;
    const double change = entering ? -tableau_.Change(i) : tableau_.Change(i);
    if (best < 0 || change < least) std::tie(best, least) = std::tuple(i, change);
  }
  return best;
}

template class Detours<float>;
template class Detours<double>;

}  // namespace sparsefw::cpu
