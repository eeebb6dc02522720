#include "core/src/cpu/screen/screen_kernels.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/src/cpu/screen/screen_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

// After foreach_target.h.
#include "core/src/cpu/screen/lane_bits-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sparsefw::cpu::HWY_NAMESPACE {

template <typename Real>
HWY_INLINE void ScreenAs(const RowOperands<Real>& row, const ScreenTest<Real>& test,
                         uint64_t* HWY_RESTRICT active, uint64_t* HWY_RESTRICT above) {
  const hn::ScalableTag<Real> d;
  const size_t lanes = hn::Lanes(d);
  const auto radius = hn::Set(d, test.radius);
  const auto low = hn::Set(d, test.low);
  const auto high = hn::Set(d, test.high);
  for (int64_t word = 0; word < row.words; ++word) {
    uint64_t over = 0;
    uint64_t under = 0;
    for (size_t lane = 0; lane < static_cast<size_t>(kWord); lane += lanes) {
      const int64_t col = word * kWord + static_cast<int64_t>(lane);
      const auto weight = hn::LoadU(d, row.weights + col);
      const auto score = hn::Mul(weight, hn::Load(d, row.product + col));
      const auto reach = hn::Mul(hn::Mul(hn::Abs(weight), hn::Load(d, test.norms + col)), radius);
      over |= BitsAt(d, hn::Gt(hn::Sub(score, reach), high), lane);
      const auto most = hn::Add(score, reach);
      under |= BitsAt(d, hn::Or(hn::Lt(most, low), hn::Le(most, hn::Zero(d))), lane);
    }
    const uint64_t free = ~row.fixed[word];
    above[word] = over & free;
    active[word] = ~over & ~under & free;
  }
}

template <typename Real>
HWY_INLINE Real LeastAs(int64_t words, const Real* HWY_RESTRICT weights,
                        const Real* HWY_RESTRICT product, const uint64_t* HWY_RESTRICT vertex) {
  const hn::ScalableTag<Real> d;
  const size_t lanes = hn::Lanes(d);
  const auto largest = hn::Set(d, std::numeric_limits<Real>::max());
  auto least = largest;
  for (int64_t word = 0; word < words; ++word) {
    if (vertex[word] == 0) continue;
    for (size_t lane = 0; lane < static_cast<size_t>(kWord); lane += lanes) {
      const int64_t col = word * kWord + static_cast<int64_t>(lane);
      const auto score = hn::Mul(hn::LoadU(d, weights + col), hn::Load(d, product + col));
      least = hn::Min(least, hn::IfThenElse(MaskAt(d, vertex[word], lane), score, largest));
    }
  }
  return hn::GetLane(hn::MinOfLanes(d, least));
}

template <typename Real>
HWY_INLINE void AdvanceAs(const RowOperands<Real>& row, int64_t groups, Real step, Real low,
                          Real high, Real* HWY_RESTRICT scores, uint64_t* HWY_RESTRICT above,
                          uint64_t* HWY_RESTRICT window) {
  const hn::ScalableTag<Real> d;
  const size_t lanes = hn::Lanes(d);
  const auto steps = hn::Set(d, step);
  const auto lows = hn::Set(d, low);
  const auto highs = hn::Set(d, high);
  const int64_t end = groups * kLaneGroup;
  above[0] = window[0] = 0;
  for (int64_t first = 0, word = 0; first < end; first += kWord, ++word) {
    uint64_t over_low = 0;
    uint64_t over_high = 0;
    const auto count = static_cast<size_t>(std::min<int64_t>(kWord, end - first));
    for (size_t lane = 0; lane < count; lane += lanes) {
      const int64_t col = first + static_cast<int64_t>(lane);
      const auto e = hn::Load(d, row.product + col);
      const auto u = hn::Load(d, row.vertex_product + col);
      const auto moved = hn::MulAdd(steps, hn::Sub(u, e), e);
      hn::Store(moved, d, row.product + col);
      const auto score = hn::Mul(hn::Load(d, row.weights + col), moved);
      hn::Store(score, d, scores + col);
      over_low |= BitsAt(d, hn::Gt(score, lows), lane);
      over_high |= BitsAt(d, hn::Gt(score, highs), lane);
    }
    above[word] = over_high;
    window[word] = over_low & ~over_high;
  }
}

template <typename Real>
HWY_INLINE void ScoreActiveAs(const RowOperands<Real>& row, int64_t groups, Real step,
                              Real* HWY_RESTRICT scores) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto steps = hn::Set(d, step);
  for (int64_t col = 0; col < groups * kLaneGroup; col += lanes) {
    const auto e = hn::Load(d, row.product + col);
    const auto u = hn::Load(d, row.vertex_product + col);
    const auto moved = hn::MulAdd(steps, hn::Sub(u, e), e);
    hn::Store(moved, d, row.product + col);
    hn::Store(hn::Mul(hn::Load(d, row.weights + col), moved), d, scores + col);
  }
}

template <typename Real>
HWY_INLINE void BlendAs(int64_t words, Real keep, const Real* HWY_RESTRICT other, Real move,
                        Real* HWY_RESTRICT out) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto keeps = hn::Set(d, keep);
  const auto moves = hn::Set(d, move);
  for (int64_t col = 0; col < words * kWord; col += lanes) {
    const auto moved = hn::Mul(moves, hn::Load(d, other + col));
    hn::Store(hn::MulAdd(keeps, hn::Load(d, out + col), moved), d, out + col);
  }
}

template <typename Real>
HWY_INLINE void GatherAs(const Real* HWY_RESTRICT from, const Real* HWY_RESTRICT next,
                         const int32_t* HWY_RESTRICT offsets, int64_t count,
                         Real* HWY_RESTRICT out) {
  if (next == nullptr) {
    for (int64_t i = 0; i < count; ++i) out[i] = from[offsets[i]];
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    __builtin_prefetch(next + offsets[i]);
    out[i] = from[offsets[i]];
  }
}

// The dispatch tables want one plain function for each.
#define SPARSEFW_PLAIN(Real, Suffix)                                                            \
  void ScreenRow##Suffix(const RowOperands<Real>& row, const ScreenTest<Real>& test,            \
                         uint64_t* active, uint64_t* above) {                                   \
    ScreenAs(row, test, active, above);                                                         \
  }                                                                                             \
  Real LeastScore##Suffix(int64_t words, const Real* weights, const Real* product,              \
                          const uint64_t* vertex) {                                             \
    return LeastAs(words, weights, product, vertex);                                            \
  }                                                                                             \
  void AdvanceActive##Suffix(const RowOperands<Real>& row, int64_t groups, Real step, Real low, \
                             Real high, Real* scores, uint64_t* above, uint64_t* window) {      \
    AdvanceAs(row, groups, step, low, high, scores, above, window);                             \
  }                                                                                             \
  void ScoreActive##Suffix(const RowOperands<Real>& row, int64_t groups, Real step,             \
                           Real* scores) {                                                      \
    ScoreActiveAs(row, groups, step, scores);                                                   \
  }                                                                                             \
  void BlendRow##Suffix(int64_t words, Real keep, const Real* other, Real move, Real* out) {    \
    BlendAs(words, keep, other, move, out);                                                     \
  }                                                                                             \
  void GatherRow##Suffix(const Real* from, const Real* next, const int32_t* offsets,            \
                         int64_t count, Real* out) {                                            \
    GatherAs(from, next, offsets, count, out);                                                  \
  }
SPARSEFW_PLAIN(float, F32)
SPARSEFW_PLAIN(double, F64)
#undef SPARSEFW_PLAIN

}  // namespace sparsefw::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsefw::cpu {

#define SPARSEFW_DISPATCH(Real, Suffix)                                                            \
  HWY_EXPORT(ScreenRow##Suffix);                                                                   \
  HWY_EXPORT(LeastScore##Suffix);                                                                  \
  HWY_EXPORT(AdvanceActive##Suffix);                                                               \
  HWY_EXPORT(ScoreActive##Suffix);                                                                 \
  HWY_EXPORT(BlendRow##Suffix);                                                                    \
  HWY_EXPORT(GatherRow##Suffix);                                                                   \
  void ScreenRow(const RowOperands<Real>& row, const ScreenTest<Real>& test, uint64_t* active,     \
                 uint64_t* above) {                                                                \
    HWY_DYNAMIC_DISPATCH(ScreenRow##Suffix)(row, test, active, above);                             \
  }                                                                                                \
  Real LeastScore(int64_t words, const Real* weights, const Real* product,                         \
                  const uint64_t* vertex) {                                                        \
    return HWY_DYNAMIC_DISPATCH(LeastScore##Suffix)(words, weights, product, vertex);              \
  }                                                                                                \
  void AdvanceActive(const RowOperands<Real>& row, int64_t groups, Real step, Real low, Real high, \
                     Real* scores, uint64_t* above, uint64_t* window) {                            \
    HWY_DYNAMIC_DISPATCH(AdvanceActive##Suffix)                                                    \
    (row, groups, step, low, high, scores, above, window);                                         \
  }                                                                                                \
  void ScoreActive(const RowOperands<Real>& row, int64_t groups, Real step, Real* scores) {        \
    HWY_DYNAMIC_DISPATCH(ScoreActive##Suffix)(row, groups, step, scores);                          \
  }                                                                                                \
  void BlendRow(int64_t words, Real keep, const Real* other, Real move, Real* out) {               \
    HWY_DYNAMIC_DISPATCH(BlendRow##Suffix)(words, keep, other, move, out);                         \
  }                                                                                                \
  void GatherRow(const Real* from, const Real* next, const int32_t* offsets, int64_t count,        \
                 Real* out) {                                                                      \
    HWY_DYNAMIC_DISPATCH(GatherRow##Suffix)(from, next, offsets, count, out);                      \
  }
SPARSEFW_DISPATCH(float, F32)
SPARSEFW_DISPATCH(double, F64)
#undef SPARSEFW_DISPATCH

}  // namespace sparsefw::cpu
#endif  // HWY_ONCE
