#include "core/src/cpu/joint/joint_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/src/cpu/joint/joint_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sparsefw::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, typename Real>
HWY_INLINE hn::Vec<D> GainsAt(D d, const Leaving<Real>& l, int64_t p) {
  const auto entry = hn::LoadU(d, l.column + p);
  const auto diagonal =
      hn::MulAdd(hn::Mul(entry, entry), hn::Set(d, l.inverse), hn::LoadU(d, l.diagonals + p));
  const auto target = hn::MulAdd(entry, hn::Set(d, l.step), hn::LoadU(d, l.targets + p));
  const auto gain = hn::Div(hn::Mul(target, target), diagonal);
  return hn::IfThenElseZero(hn::Gt(diagonal, hn::LoadU(d, l.floors + p)), gain);
}

template <typename Real>
HWY_INLINE Real BestAs(const Leaving<Real>& l) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto best = hn::Zero(d);
  for (int64_t p = 0; p < l.size; p += lanes) best = hn::Max(best, GainsAt(d, l, p));
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

// In the same order of operations as above, so that the best is met again.
template <typename Real>
HWY_INLINE int64_t FindAs(const Leaving<Real>& l, Real best) {
  if (!(best > 0)) return -1;
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto wanted = hn::Set(d, best);
  for (int64_t p = 0; p < l.size; p += lanes) {
    const intptr_t lane = hn::FindFirstTrue(d, hn::Eq(GainsAt(d, l, p), wanted));
    if (lane >= 0) return p + lane;
  }
  return -1;
}

// The names that HWY_EXPORT takes are one a precision.
float BestF32(const Leaving<float>& l) { return BestAs(l); }
double BestF64(const Leaving<double>& l) { return BestAs(l); }
int64_t FindF32(const Leaving<float>& l, float best) { return FindAs(l, best); }
int64_t FindF64(const Leaving<double>& l, double best) { return FindAs(l, best); }

}  // namespace sparsefw::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsefw::cpu {

HWY_EXPORT(BestF32);
HWY_EXPORT(BestF64);
HWY_EXPORT(FindF32);
HWY_EXPORT(FindF64);

float BestGain(const Leaving<float>& leaving) { return HWY_DYNAMIC_DISPATCH(BestF32)(leaving); }
double BestGain(const Leaving<double>& leaving) { return HWY_DYNAMIC_DISPATCH(BestF64)(leaving); }
int64_t FindGain(const Leaving<float>& leaving, float best) {
  return HWY_DYNAMIC_DISPATCH(FindF32)(leaving, best);
}
int64_t FindGain(const Leaving<double>& leaving, double best) {
  return HWY_DYNAMIC_DISPATCH(FindF64)(leaving, best);
}

}  // namespace sparsefw::cpu
#endif  // HWY_ONCE
