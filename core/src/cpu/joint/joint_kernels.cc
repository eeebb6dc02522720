#include "core/src/cpu/joint/joint_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/src/cpu/joint/joint_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

// Must come after foreach_target.h.
#include "core/src/cpu/linalg/kernel_tables.h"
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
Real BestGain(const Leaving<Real>& l) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto best = hn::Zero(d);
  for (int64_t p = 0; p < l.size; p += lanes) best = hn::Max(best, GainsAt(d, l, p));
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

// The order of operations is that of above, so that the best is met again.
template <typename Real>
int64_t FindGain(const Leaving<Real>& l, Real best) {
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

// A tile of the sum stays in registers while all terms are taken from it.
template <int kRows, typename Real>
HWY_INLINE void SubtractFromRows(const OuterProducts<Real>& o, int64_t row) {
  const hn::CappedTag<Real, 16> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = o.upper ? row / lanes * lanes : 0; j < o.size; j += 3 * lanes) {
    V sums[kRows][3];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < 3; ++v) {
        sums[r][v] = hn::LoadU(d, o.sum + (row + r) * o.sum_stride + j + v * lanes);
      }
    }
    for (int64_t k = 0; k < o.count; ++k) {
      const Real* right = o.right + k * o.stride + j;
      const Real* left = o.left + k * o.stride + row;
      const V a = hn::LoadU(d, right);
      const V b = hn::LoadU(d, right + lanes);
      const V c = hn::LoadU(d, right + 2 * lanes);
      for (int r = 0; r < kRows; ++r) {
        const V factor = hn::Set(d, left[r]);
        sums[r][0] = hn::NegMulAdd(factor, a, sums[r][0]);
        sums[r][1] = hn::NegMulAdd(factor, b, sums[r][1]);
        sums[r][2] = hn::NegMulAdd(factor, c, sums[r][2]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < 3; ++v) {
        hn::StoreU(sums[r][v], d, o.sum + (row + r) * o.sum_stride + j + v * lanes);
      }
    }
  }
}

template <typename Real>
void SubtractOuterProducts(const OuterProducts<Real>& o) {
  int64_t row = o.begin;
  for (; row + 8 <= o.end; row += 8) SubtractFromRows<8>(o, row);
  for (; row < o.end; ++row) SubtractFromRows<1>(o, row);
}

// Some columns at a time, so that all rows of them stay in the first cache.
template <typename Real>
void SolvePanel(const PanelSolve<Real>& s) {
  const hn::CappedTag<Real, 16> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = s.first; j < s.size; j += 3 * lanes) {
    for (int64_t n = 0; n < s.count; ++n) {
      const int64_t m = s.backward ? s.count - 1 - n : n;
      Real* row = s.rows + m * s.stride + j;
      V a = hn::LoadU(d, row);
      V b = hn::LoadU(d, row + lanes);
      V c = hn::LoadU(d, row + 2 * lanes);
      const int64_t begin = s.backward ? m + 1 : 0;
      const int64_t end = s.backward ? s.count : m;
      for (int64_t p = begin; p < end; ++p) {
        const Real* other = s.rows + p * s.stride + j;
        const V factor =
            hn::Set(d, s.backward ? s.factor[m * s.count + p] : s.factor[p * s.count + m]);
        a = hn::NegMulAdd(factor, hn::LoadU(d, other), a);
        b = hn::NegMulAdd(factor, hn::LoadU(d, other + lanes), b);
        c = hn::NegMulAdd(factor, hn::LoadU(d, other + 2 * lanes), c);
      }
      const V inverse = hn::Set(d, s.factor[m * s.count + m]);
      hn::StoreU(hn::Mul(a, inverse), d, row);
      hn::StoreU(hn::Mul(b, inverse), d, row + lanes);
      hn::StoreU(hn::Mul(c, inverse), d, row + 2 * lanes);
    }
  }
}

template <typename Real>
constexpr JointKernels<Real> kJointKernels = {BestGain<Real>, FindGain<Real>,
                                              SubtractOuterProducts<Real>, SolvePanel<Real>};
const JointKernels<float>* FloatJointKernels() { return &kJointKernels<float>; }
const JointKernels<double>* DoubleJointKernels() { return &kJointKernels<double>; }

}  // namespace sparsefw::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsefw::cpu {

SPARSEFW_DISPATCH_TABLES(JointKernels, KernelsOfJointSearch)

}  // namespace sparsefw::cpu
#endif  // HWY_ONCE
