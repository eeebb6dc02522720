#include "core/src/cpu/screen/select_kernels.h"

#include <algorithm>
#include <limits>

#include "core/src/cpu/screen/screen_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/src/cpu/screen/select_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

// After foreach_target.h.
#include "core/src/cpu/screen/lane_bits-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sparsefw::cpu::HWY_NAMESPACE {

template <typename Real>
HWY_INLINE int64_t CountOver(const Real* HWY_RESTRICT scores, int64_t groups, Real limit) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto limits = hn::Set(d, limit);
  size_t count = 0;
  for (int64_t col = 0; col < groups * kLaneGroup; col += lanes) {
    count += hn::CountTrue(d, hn::Gt(hn::Load(d, scores + col), limits));
  }
  return static_cast<int64_t>(count);
}

// The least score above `limit`; the largest value where none is.
template <typename Real>
HWY_INLINE Real LeastOver(const Real* HWY_RESTRICT scores, int64_t groups, Real limit) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto limits = hn::Set(d, limit);
  auto least = hn::Set(d, std::numeric_limits<Real>::max());
  for (int64_t col = 0; col < groups * kLaneGroup; col += lanes) {
    const auto score = hn::Load(d, scores + col);
    least = hn::IfThenElse(hn::Gt(score, limits), hn::Min(least, score), least);
  }
  return hn::GetLane(hn::MinOfLanes(d, least));
}

// More than `wanted` - 1 scores lie over `low`, fewer over `high`.
template <typename Real>
struct Bracket {
  Real low = 0;
  Real high = std::numeric_limits<Real>::max();
  int64_t over_low = 0;
  int64_t over_high = 0;
};

// Probes from the guess on, to the side where the threshold is, until few scores are left
// between the ends.
template <typename Real>
HWY_INLINE Bracket<Real> BracketThreshold(const Real* HWY_RESTRICT scores, int64_t groups,
                                          int64_t wanted, ThresholdGuess<Real>& guess) {
  constexpr int kProbes = 12;
  constexpr int64_t kFew = 2;
  Bracket<Real> bracket;
  bracket.over_low = -1;  // not counted yet
  Real probe = guess.threshold;
  for (int i = 0; i < kProbes && probe > 0; ++i) {
    const int64_t over = CountOver(scores, groups, probe);
    (over >= wanted ? bracket.low : bracket.high) = probe;
    (over >= wanted ? bracket.over_low : bracket.over_high) = over;
    const bool below_known = bracket.over_low >= 0;
    const bool above_known = bracket.high < std::numeric_limits<Real>::max();
    if (below_known && above_known) {
      const int64_t between = bracket.over_low - bracket.over_high;
      if (between <= kFew) break;
      const Real width = bracket.high - bracket.low;
      if (i < 4) guess.spacing = width / static_cast<Real>(between);
      const auto share = (static_cast<Real>(wanted - bracket.over_high) - static_cast<Real>(0.5)) /
                         static_cast<Real>(between);
      probe = bracket.high - width * share;
      if (!(probe > bracket.low && probe < bracket.high)) break;
      continue;
    }
    // A little too far rather than not far enough.
    const auto missing = static_cast<Real>((over >= wanted ? over - wanted : wanted - over) + 1);
    const Real step = guess.spacing * missing * static_cast<Real>(1 << i);
    probe = over >= wanted ? probe + step : probe - step;
  }
  if (bracket.over_low < 0) bracket.over_low = CountOver(scores, groups, Real{0});
  return bracket;
}

template <typename Real>
HWY_INLINE void SelectOver(const Real* HWY_RESTRICT scores, int64_t groups, Real threshold,
                           int64_t equal_wanted, uint64_t* HWY_RESTRICT vertex) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto limit = hn::Set(d, threshold);
  const int64_t end = groups * kLaneGroup;
  for (int64_t first = (end - 1) / kWord * kWord; first >= 0; first -= kWord) {
    uint64_t over = 0;
    uint64_t equal = 0;
    for (int64_t col = first; col < std::min(end, first + kWord); col += lanes) {
      const auto score = hn::Load(d, scores + col);
      over |= BitsAt(d, hn::Gt(score, limit), static_cast<size_t>(col - first));
      equal |= BitsAt(d, hn::Eq(score, limit), static_cast<size_t>(col - first));
    }
    // The later of equal ones.
    auto found = static_cast<int64_t>(hwy::PopCount(equal));
    for (; found > equal_wanted; --found) equal &= equal - 1;
    equal_wanted -= found;
    vertex[first / kWord] = over | equal;
  }
}

template <typename Real>
HWY_INLINE Real SelectLargestAs(const Real* HWY_RESTRICT scores, int64_t groups, int64_t wanted,
                                ThresholdGuess<Real>& guess, uint64_t* HWY_RESTRICT vertex) {
  if (!(guess.spacing > 0)) guess.spacing = guess.threshold * static_cast<Real>(0.01);
  const Bracket<Real> bracket = BracketThreshold(scores, groups, wanted, guess);
  if (bracket.over_low <= wanted && bracket.low == 0) {  // every positive one
    SelectOver(scores, groups, Real{0}, 0, vertex);
    guess.threshold = LeastOver(scores, groups, Real{0});
    return bracket.over_low < wanted ? 0 : guess.threshold;
  }
  // One after the other, from below.
  Real threshold = bracket.low;
  int64_t over = bracket.over_low;
  while (over >= wanted) {
    threshold = LeastOver(scores, groups, threshold);
    over = bracket.over_low - bracket.over_high == 1 ? bracket.over_high
                                                     : CountOver(scores, groups, threshold);
  }
  SelectOver(scores, groups, threshold, wanted - over, vertex);
  guess.threshold = threshold;
  return threshold;
}

// The dispatch tables want one plain function for each.
#define SPARSEFW_PLAIN(Real, Suffix)                                             \
  Real SelectLargest##Suffix(const Real* scores, int64_t groups, int64_t wanted, \
                             ThresholdGuess<Real>& guess, uint64_t* vertex) {    \
    return SelectLargestAs(scores, groups, wanted, guess, vertex);               \
  }
SPARSEFW_PLAIN(float, F32)
SPARSEFW_PLAIN(double, F64)
#undef SPARSEFW_PLAIN

}  // namespace sparsefw::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsefw::cpu {

#define SPARSEFW_DISPATCH(Real, Suffix)                                                        \
  HWY_EXPORT(SelectLargest##Suffix);                                                           \
  Real SelectLargest(const Real* scores, int64_t groups, int64_t wanted,                       \
                     ThresholdGuess<Real>& guess, uint64_t* vertex) {                          \
    return HWY_DYNAMIC_DISPATCH(SelectLargest##Suffix)(scores, groups, wanted, guess, vertex); \
  }
SPARSEFW_DISPATCH(float, F32)
SPARSEFW_DISPATCH(double, F64)
#undef SPARSEFW_DISPATCH

}  // namespace sparsefw::cpu
#endif  // HWY_ONCE
