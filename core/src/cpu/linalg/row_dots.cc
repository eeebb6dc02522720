#include "core/src/cpu/linalg/row_dots.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/src/cpu/linalg/row_dots.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sparsefw::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class DD>
HWY_INLINE hn::Vec<DD> DoublesAt(DD dd, const float* HWY_RESTRICT from) {
  const hn::Rebind<float, DD> d;
  return hn::PromoteTo(dd, hn::LoadU(d, from));
}
template <class DD>
HWY_INLINE hn::Vec<DD> DoublesAt(DD dd, const double* HWY_RESTRICT from) {
  return hn::LoadU(dd, from);
}

// Two sums a row, to hide the latency of the additions.
template <typename Real>
HWY_INLINE void DotRowsAs(const Real* const* rows, const double* HWY_RESTRICT vector, int64_t size,
                          double* HWY_RESTRICT dots) {
  const hn::ScalableTag<double> dd;
  const auto lanes = static_cast<int64_t>(hn::Lanes(dd));
  const Real* HWY_RESTRICT row0 = rows[0];
  const Real* HWY_RESTRICT row1 = rows[1];
  const Real* HWY_RESTRICT row2 = rows[2];
  const Real* HWY_RESTRICT row3 = rows[3];
  auto a0 = hn::Zero(dd), a1 = hn::Zero(dd), a2 = hn::Zero(dd), a3 = hn::Zero(dd);
  auto b0 = hn::Zero(dd), b1 = hn::Zero(dd), b2 = hn::Zero(dd), b3 = hn::Zero(dd);
  int64_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    const auto x = hn::LoadU(dd, vector + i);
    const auto y = hn::LoadU(dd, vector + i + lanes);
    a0 = hn::MulAdd(DoublesAt(dd, row0 + i), x, a0);
    a1 = hn::MulAdd(DoublesAt(dd, row1 + i), x, a1);
    a2 = hn::MulAdd(DoublesAt(dd, row2 + i), x, a2);
    a3 = hn::MulAdd(DoublesAt(dd, row3 + i), x, a3);
    b0 = hn::MulAdd(DoublesAt(dd, row0 + i + lanes), y, b0);
    b1 = hn::MulAdd(DoublesAt(dd, row1 + i + lanes), y, b1);
    b2 = hn::MulAdd(DoublesAt(dd, row2 + i + lanes), y, b2);
    b3 = hn::MulAdd(DoublesAt(dd, row3 + i + lanes), y, b3);
  }
  dots[0] = hn::GetLane(hn::SumOfLanes(dd, hn::Add(a0, b0)));
  dots[1] = hn::GetLane(hn::SumOfLanes(dd, hn::Add(a1, b1)));
  dots[2] = hn::GetLane(hn::SumOfLanes(dd, hn::Add(a2, b2)));
  dots[3] = hn::GetLane(hn::SumOfLanes(dd, hn::Add(a3, b3)));
  for (; i < size; ++i) {
    dots[0] += static_cast<double>(row0[i]) * vector[i];
    dots[1] += static_cast<double>(row1[i]) * vector[i];
    dots[2] += static_cast<double>(row2[i]) * vector[i];
    dots[3] += static_cast<double>(row3[i]) * vector[i];
  }
}

void DotRowsF32(const float* const* rows, const double* vector, int64_t size, double* dots) {
  DotRowsAs(rows, vector, size, dots);
}
void DotRowsF64(const double* const* rows, const double* vector, int64_t size, double* dots) {
  DotRowsAs(rows, vector, size, dots);
}

}  // namespace sparsefw::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsefw::cpu {

HWY_EXPORT(DotRowsF32);
HWY_EXPORT(DotRowsF64);

void DotRows(const float* const* rows, const double* vector, int64_t size, double* dots) {
  HWY_DYNAMIC_DISPATCH(DotRowsF32)(rows, vector, size, dots);
}
void DotRows(const double* const* rows, const double* vector, int64_t size, double* dots) {
  HWY_DYNAMIC_DISPATCH(DotRowsF64)(rows, vector, size, dots);
}

}  // namespace sparsefw::cpu
#endif  // HWY_ONCE
