#include "core/src/cpu/linalg/kernels.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/src/cpu/linalg/kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

// Must come after foreach_target.h.
#include "core/src/cpu/linalg/kernel_tables.h"
#include "core/src/cpu/linalg/lane_bits-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sparsefw::cpu::HWY_NAMESPACE {

// One word of MaskedDot; two sums, to hide the latency of the additions.
template <class DD, class V, typename Real>
HWY_INLINE void DotWord(DD dd, const Real* HWY_RESTRICT a, const Real* HWY_RESTRICT b,
                        uint64_t skip, V& sum0, V& sum1) {
  const size_t lanes = hn::Lanes(dd);
  for (size_t col = 0; col < kWord; col += 2 * lanes) {
    const size_t next = col + lanes;
    const V a0 = hn::IfThenZeroElse(MaskAt(dd, skip, col), LoadDoubles(dd, a + col));
    const V a1 = hn::IfThenZeroElse(MaskAt(dd, skip, next), LoadDoubles(dd, a + next));
    sum0 = hn::MulAdd(a0, LoadDoubles(dd, b + col), sum0);
    sum1 = hn::MulAdd(a1, LoadDoubles(dd, b + next), sum1);
  }
}

template <class D, class V, typename Real>
HWY_INLINE V UpdatedProduct(D d, const RowOperands<Real>& row, int64_t col, V step) {
  const V e = hn::Load(d, row.product + col);
  const V u = hn::Load(d, row.vertex_product + col);
  const V updated = hn::MulAdd(step, hn::Sub(u, e), e);
  hn::Store(updated, d, row.product + col);
  return updated;
}

template <typename Real>
double UpdateAndScan(const RowOperands<Real>& row, Real step, Real low, Real high,
                     uint64_t* HWY_RESTRICT above, uint64_t* HWY_RESTRICT window) {
  const hn::ScalableTag<Real> d;
  const hn::ScalableTag<double> dd;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto steps = hn::Set(d, step);
  const auto lows = hn::Set(d, low);
  const auto highs = hn::Set(d, high);
  auto sum0 = hn::Zero(dd);
  auto sum1 = hn::Zero(dd);
  for (int64_t word = 0; word < row.words; ++word) {
    const int64_t first = word * kWord;
    uint64_t over_low = 0;
    uint64_t over_high = 0;
    for (int64_t col = first; col < std::min(first + kWord, row.lanes); col += lanes) {
      const auto e = UpdatedProduct(d, row, col, steps);
      const auto score = hn::Mul(hn::LoadU(d, row.weights + col), e);
      const auto lane = static_cast<size_t>(col - first);
      over_low |= BitsAt(d, hn::Gt(score, lows), lane);
      over_high |= BitsAt(d, hn::Gt(score, highs), lane);
    }
    const uint64_t fixed = row.fixed[word];
    above[word] = over_high & ~fixed;
    window[word] = over_low & ~over_high & ~fixed;
    DotWord(dd, row.weights + first, row.product + first, fixed | over_high, sum0, sum1);
  }
  return hn::GetLane(hn::SumOfLanes(dd, hn::Add(sum0, sum1)));
}

template <typename Real>
void UpdateAndScore(const RowOperands<Real>& row, Real step, Real* HWY_RESTRICT scores) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto steps = hn::Set(d, step);
  for (int64_t col = 0; col < row.lanes; col += lanes) {
    const auto e = UpdatedProduct(d, row, col, steps);
    hn::Store(hn::Mul(hn::LoadU(d, row.weights + col), e), d, scores + col);
  }
}

// In every run of kGroup lanes: fewer than `capacity` others rank before it.
// Lane i meets lane i^k for k = 1 .. kGroup-1; of equal scores the higher lane
// ranks first.
template <int kGroup, class D, class V>
HWY_INLINE hn::Mask<D> RanksBelow(D d, V score, V capacity) {
  using T = hn::TFromD<D>;
  using Index = hwy::MakeSigned<T>;
  const hn::RebindToSigned<D> di;
  const auto lane = hn::Iota(di, 0);
  V before = hn::Zero(d);
  for (int k = 1; k < kGroup; ++k) {
    const auto partner = hn::Xor(lane, hn::Set(di, static_cast<Index>(k)));
    const V other = hn::TableLookupLanes(score, hn::IndicesFromVec(d, partner));
    const auto partner_is_higher = hn::RebindMask(d, hn::Gt(partner, lane));
    const auto wins =
        hn::Or(hn::Gt(other, score), hn::And(partner_is_higher, hn::Eq(other, score)));
    before = hn::Add(before, hn::IfThenElseZero(wins, hn::Set(d, T{1})));
  }
  return hn::Lt(before, capacity);
}

// Fixed coordinates rank before all others and so use up capacity.
template <int kGroup, typename Real>
HWY_INLINE double SelectGroupsOf(const RowOperands<Real>& row, Real step, Real capacity,
                                 uint64_t* HWY_RESTRICT vertex) {
  const hn::ScalableTag<Real> d;
  const hn::ScalableTag<double> dd;
  const size_t lanes = hn::Lanes(d);
  const auto steps = hn::Set(d, step);
  const auto capacities = hn::Set(d, capacity);
  const auto first_of_all = hn::Set(d, std::numeric_limits<Real>::infinity());
  auto sum0 = hn::Zero(dd);
  auto sum1 = hn::Zero(dd);
  for (int64_t word = 0; word < row.words; ++word) {
    const int64_t first = word * kWord;
    const uint64_t fixed = row.fixed[word];
    uint64_t selected = 0;
    for (size_t lane = 0; lane < kWord; lane += lanes) {
      const int64_t col = first + static_cast<int64_t>(lane);
      const auto e = UpdatedProduct(d, row, col, steps);
      const auto score = hn::Mul(hn::LoadU(d, row.weights + col), e);
      const auto rank = hn::IfThenElse(MaskAt(d, fixed, lane), first_of_all, score);
      const auto chosen =
          hn::And(RanksBelow<kGroup>(d, rank, capacities), hn::Gt(score, hn::Zero(d)));
      selected |= BitsAt(d, chosen, lane);
    }
    vertex[word] = selected & ~fixed;
    DotWord(dd, row.weights + first, row.product + first, fixed | selected, sum0, sum1);
  }
  return hn::GetLane(hn::SumOfLanes(dd, hn::Add(sum0, sum1)));
}

template <typename Real>
std::optional<double> UpdateAndSelect(const RowOperands<Real>& row, Real step, int64_t group,
                                      Real capacity, uint64_t* HWY_RESTRICT vertex) {
  constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<Real>());
  if constexpr (kLanes >= 2) {
    if (group == 2) return SelectGroupsOf<2>(row, step, capacity, vertex);
  }
  if constexpr (kLanes >= 4) {
    if (group == 4) return SelectGroupsOf<4>(row, step, capacity, vertex);
  }
  if constexpr (kLanes >= 8) {
    if (group == 8) return SelectGroupsOf<8>(row, step, capacity, vertex);
  }
  if constexpr (kLanes >= 16) {
    if (group == 16) return SelectGroupsOf<16>(row, step, capacity, vertex);
  }
  return std::nullopt;
}

template <typename Real>
double MaskedDot(int64_t words, const Real* HWY_RESTRICT a, const Real* HWY_RESTRICT b,
                 const uint64_t* skip, const uint64_t* skip_too) {
  const hn::ScalableTag<double> dd;
  auto sum0 = hn::Zero(dd);
  auto sum1 = hn::Zero(dd);
  for (int64_t word = 0; word < words; ++word) {
    DotWord(dd, a + word * kWord, b + word * kWord, skip[word] | skip_too[word], sum0, sum1);
  }
  return hn::GetLane(hn::SumOfLanes(dd, hn::Add(sum0, sum1)));
}

// Two sums a row, to hide the latency of the additions.
template <typename Real>
void DotRows(const Real* const* rows, const double* HWY_RESTRICT vector, int64_t size,
             double* HWY_RESTRICT dots) {
  const hn::ScalableTag<double> dd;
  using V = hn::Vec<decltype(dd)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(dd));
  V a[kDotRows];
  V b[kDotRows];
  for (int r = 0; r < kDotRows; ++r) a[r] = b[r] = hn::Zero(dd);
  int64_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    const V x = hn::LoadU(dd, vector + i);
    const V y = hn::LoadU(dd, vector + i + lanes);
    for (int r = 0; r < kDotRows; ++r) {
      a[r] = hn::MulAdd(LoadDoubles(dd, rows[r] + i), x, a[r]);
      b[r] = hn::MulAdd(LoadDoubles(dd, rows[r] + i + lanes), y, b[r]);
    }
  }
  for (int r = 0; r < kDotRows; ++r) {
    dots[r] = hn::GetLane(hn::SumOfLanes(dd, hn::Add(a[r], b[r])));
    for (int64_t k = i; k < size; ++k) dots[r] += static_cast<double>(rows[r][k]) * vector[k];
  }
}

template <typename Real>
void ZeroMasked(int64_t words, const Real* a, const uint64_t* HWY_RESTRICT skip, Real* out) {
  const hn::ScalableTag<Real> d;
  const size_t lanes = hn::Lanes(d);
  for (int64_t word = 0; word < words; ++word) {
    for (size_t lane = 0; lane < kWord; lane += lanes) {
      const int64_t col = word * kWord + static_cast<int64_t>(lane);
      const auto mask = MaskAt(d, skip[word], lane);
      hn::Store(hn::IfThenZeroElse(mask, hn::LoadU(d, a + col)), d, out + col);
    }
  }
}

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

// The least score above `limit`; infinity where none is.
template <typename Real>
HWY_INLINE Real LeastOver(const Real* HWY_RESTRICT scores, int64_t groups, Real limit) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto limits = hn::Set(d, limit);
  auto least = hn::Set(d, std::numeric_limits<Real>::infinity());
  for (int64_t col = 0; col < groups * kLaneGroup; col += lanes) {
    const auto score = hn::Load(d, scores + col);
    least = hn::IfThenElse(hn::Gt(score, limits), hn::Min(least, score), least);
  }
  return hn::GetLane(hn::MinOfLanes(d, least));
}

// The `rank` largest score of those over `low`.
template <typename Real>
Real NthOver(const Real* scores, int64_t groups, Real low, int64_t rank) {
  std::vector<Real> over;
  for (int64_t col = 0; col < groups * kLaneGroup; ++col) {
    if (scores[col] > low) over.push_back(scores[col]);
  }
  std::nth_element(over.begin(), over.begin() + rank - 1, over.end(), std::greater<Real>());
  return over[static_cast<size_t>(rank - 1)];
}

// At least `wanted` scores lie over `low`, unless fewer are positive, and fewer than `wanted` over
// `high`.
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
Real SelectLargest(const Real* HWY_RESTRICT scores, int64_t groups, int64_t wanted,
                   ThresholdGuess<Real>& guess, uint64_t* HWY_RESTRICT vertex) {
  if (wanted <= 0) {
    std::fill_n(vertex, (groups * kLaneGroup + kWord - 1) / kWord, 0);
    return 0;
  }
  if (!(guess.spacing > 0)) guess.spacing = guess.threshold * static_cast<Real>(0.01);
  const Bracket<Real> bracket = BracketThreshold(scores, groups, wanted, guess);
  if (bracket.over_low <= wanted && bracket.low == 0) {  // every positive one
    SelectOver(scores, groups, Real{0}, 0, vertex);
    guess.threshold = bracket.over_low > 0 ? LeastOver(scores, groups, Real{0}) : 0;
    return bracket.over_low < wanted ? 0 : guess.threshold;
  }
  constexpr int64_t kMany = 16;  // not tuned: a good guess leaves fewer, none leaves all
  Real threshold = bracket.low;
  int64_t over = bracket.over_low;
  if (over - bracket.over_high > kMany) {
    threshold = NthOver(scores, groups, threshold, wanted);
    over = CountOver(scores, groups, threshold);
  }
  // One after the other, from below.
  while (over >= wanted) {
    threshold = LeastOver(scores, groups, threshold);
    over = bracket.over_low - bracket.over_high == 1 ? bracket.over_high
                                                     : CountOver(scores, groups, threshold);
  }
  SelectOver(scores, groups, threshold, wanted - over, vertex);
  guess.threshold = threshold;
  return threshold;
}

template <typename Real>
constexpr RowKernels<Real> kRowKernels = {
    UpdateAndScan<Real>, UpdateAndScore<Real>, SelectLargest<Real>, UpdateAndSelect<Real>,
    MaskedDot<Real>,     DotRows<Real>,        ZeroMasked<Real>};
const RowKernels<float>* FloatRowKernels() { return &kRowKernels<float>; }
const RowKernels<double>* DoubleRowKernels() { return &kRowKernels<double>; }

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace sparsefw::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsefw::cpu {

SPARSEFW_DISPATCH_TABLES(RowKernels, Kernels)

HWY_EXPORT(TargetName);
const char* SimdTargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace sparsefw::cpu
#endif  // HWY_ONCE
