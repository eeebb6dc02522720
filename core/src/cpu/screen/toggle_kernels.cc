#include "core/src/cpu/screen/toggle_kernels.h"

#include <algorithm>

#include "core/src/cpu/screen/screen_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/src/cpu/screen/toggle_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

// After foreach_target.h.
#include "core/src/cpu/screen/lane_bits-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sparsefw::cpu::HWY_NAMESPACE {

template <class D, typename Real>
HWY_INLINE hn::Vec<D> DeltaAt(D d, const VertexChange<Real>& change, int64_t col) {
  const auto word = static_cast<size_t>(col / kWord);
  const auto shift = static_cast<size_t>(col % kWord);
  const uint64_t before = change.before[word];
  const uint64_t after = change.after[word];
  const auto weight = hn::Load(d, change.weights + col);
  const auto left = hn::IfThenElseZero(MaskAt(d, before & ~after, shift), weight);
  return hn::Sub(left, hn::IfThenElseZero(MaskAt(d, after & ~before, shift), weight));
}

// sum += a * b in float64, lane by lane or in pairs of them.
template <class D, class V, class S>
HWY_INLINE S AddProducts(D /*d*/, V a, V b, S sum) {
  const hn::ScalableTag<double> dd;
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(double)) {
    return hn::MulAdd(a, b, sum);
  } else {
#if HWY_TARGET == HWY_SCALAR
    return hn::MulAdd(hn::PromoteTo(dd, a), hn::PromoteTo(dd, b), sum);
#else
    const hn::Half<D> half;
    const auto low = hn::Mul(hn::PromoteTo(dd, hn::LowerHalf(half, a)),
                             hn::PromoteTo(dd, hn::LowerHalf(half, b)));
    const auto high = hn::MulAdd(hn::PromoteTo(dd, hn::UpperHalf(half, a)),
                                 hn::PromoteTo(dd, hn::UpperHalf(half, b)), low);
    return hn::Add(sum, high);
#endif
  }
}

template <typename Real>
HWY_INLINE ChangeSums SumChangeAs(const VertexChange<Real>& change, const Real* HWY_RESTRICT a,
                                  const Real* HWY_RESTRICT b) {
  const hn::ScalableTag<Real> d;
  const hn::ScalableTag<double> dd;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto with_a = hn::Zero(dd);
  auto with_b = hn::Zero(dd);
  size_t changed = 0;
  for (int64_t col = 0; col < change.groups * kLaneGroup; col += lanes) {
    const auto delta = DeltaAt(d, change, col);
    changed += hn::CountTrue(d, hn::Ne(delta, hn::Zero(d)));
    with_a = AddProducts(d, delta, hn::Load(d, a + col), with_a);
    with_b = AddProducts(d, delta, hn::Load(d, b + col), with_b);
  }
  return {hn::GetLane(hn::SumOfLanes(dd, with_a)), hn::GetLane(hn::SumOfLanes(dd, with_b)),
          static_cast<int64_t>(changed)};
}

template <typename Real>
HWY_INLINE void ToggleAs(const VertexChange<Real>& change, Real step, Real* HWY_RESTRICT entries,
                         Real* HWY_RESTRICT shift) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto steps = hn::Set(d, step);
  for (int64_t col = 0; col < change.groups * kLaneGroup; col += lanes) {
    const auto word = static_cast<size_t>(col / kWord);
    const auto from = static_cast<size_t>(col % kWord);
    const uint64_t before = change.before[word];
    const uint64_t after = change.after[word];
    const auto moved = hn::Sub(hn::IfThenElseZero(MaskAt(d, before & ~after, from), steps),
                               hn::IfThenElseZero(MaskAt(d, after & ~before, from), steps));
    hn::Store(hn::Add(hn::Load(d, entries + col), moved), d, entries + col);
    hn::Store(hn::Add(hn::Load(d, shift + col), moved), d, shift + col);
  }
}

// `kVectors` vectors of `out` stay in registers over all terms.
template <int kVectors, class D, class S, typename Real>
HWY_INLINE S AddTo(D d, const GramTerm<Real>* HWY_RESTRICT terms, int64_t count, int64_t first,
                   const VertexChange<Real>& change, S inner, const Real* before, Real* out) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Load(d, before + first + v * lanes);
  for (int64_t i = 0; i < count; ++i) {
    const auto factor = hn::Set(d, terms[i].factor);
    const Real* HWY_RESTRICT from = terms[i].row + first;
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = hn::MulAdd(factor, hn::Load(d, from + v * lanes), sums[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const int64_t col = first + v * lanes;
    const auto delta = DeltaAt(d, change, col);
    inner = AddProducts(d, delta, hn::Load(d, before + col), inner);
    inner = AddProducts(d, delta, sums[v], inner);
    hn::Store(sums[v], d, out + col);
  }
  return inner;
}

template <typename Real>
HWY_INLINE double AddGramTermsAs(const GramTerm<Real>* HWY_RESTRICT terms, int64_t count,
                                 const VertexChange<Real>& change, const Real* before, Real* out) {
  const hn::ScalableTag<Real> d;
  const hn::ScalableTag<double> dd;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t end = change.groups * kLaneGroup;
  auto inner = hn::Zero(dd);
  int64_t first = 0;
  for (; first + 8 * lanes <= end; first += 8 * lanes) {
    inner = AddTo<8>(d, terms, count, first, change, inner, before, out);
  }
  for (; first + 4 * lanes <= end; first += 4 * lanes) {
    inner = AddTo<4>(d, terms, count, first, change, inner, before, out);
  }
  for (; first + 2 * lanes <= end; first += 2 * lanes) {
    inner = AddTo<2>(d, terms, count, first, change, inner, before, out);
  }
  for (; first < end; first += lanes)
    inner = AddTo<1>(d, terms, count, first, change, inner, before, out);
  return hn::GetLane(hn::SumOfLanes(dd, inner));
}

// The dispatch tables want one plain function for each.
#define SPARSEFW_PLAIN(Real, Suffix)                                                             \
  ChangeSums SumChange##Suffix(const VertexChange<Real>& change, const Real* a, const Real* b) { \
    return SumChangeAs(change, a, b);                                                            \
  }                                                                                              \
  void ToggleEntries##Suffix(const VertexChange<Real>& change, Real step, Real* entries,         \
                             Real* shift) {                                                      \
    ToggleAs(change, step, entries, shift);                                                      \
  }                                                                                              \
  double AddGramTerms##Suffix(const GramTerm<Real>* terms, int64_t count,                        \
                              const VertexChange<Real>& change, const Real* before, Real* out) { \
    return AddGramTermsAs(terms, count, change, before, out);                                    \
  }
SPARSEFW_PLAIN(float, F32)
SPARSEFW_PLAIN(double, F64)
#undef SPARSEFW_PLAIN

}  // namespace sparsefw::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsefw::cpu {

#define SPARSEFW_DISPATCH(Real, Suffix)                                                         \
  HWY_EXPORT(SumChange##Suffix);                                                                \
  HWY_EXPORT(ToggleEntries##Suffix);                                                            \
  HWY_EXPORT(AddGramTerms##Suffix);                                                             \
  ChangeSums SumChange(const VertexChange<Real>& change, const Real* a, const Real* b) {        \
    return HWY_DYNAMIC_DISPATCH(SumChange##Suffix)(change, a, b);                               \
  }                                                                                             \
  void ToggleEntries(const VertexChange<Real>& change, Real step, Real* entries, Real* shift) { \
    HWY_DYNAMIC_DISPATCH(ToggleEntries##Suffix)(change, step, entries, shift);                  \
  }                                                                                             \
  double AddGramTerms(const GramTerm<Real>* terms, int64_t count,                               \
                      const VertexChange<Real>& change, const Real* before, Real* out) {        \
    return HWY_DYNAMIC_DISPATCH(AddGramTerms##Suffix)(terms, count, change, before, out);       \
  }
SPARSEFW_DISPATCH(float, F32)
SPARSEFW_DISPATCH(double, F64)
#undef SPARSEFW_DISPATCH

}  // namespace sparsefw::cpu
#endif  // HWY_ONCE
