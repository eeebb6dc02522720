#include "core/src/cpu/swaps/swap_kernels.h"

#include <bit>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/src/cpu/swaps/swap_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

// Must come after foreach_target.h.
#include "core/src/cpu/linalg/kernel_tables.h"
#include "core/src/cpu/linalg/lane_bits-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sparsefw::cpu::HWY_NAMESPACE {

template <typename Real>
void SwapTerms(const SwapOperands<Real>& row, double* HWY_RESTRICT out, double* HWY_RESTRICT in) {
  const hn::ScalableTag<double> dd;
  const size_t lanes = hn::Lanes(dd);
  const auto infinity = hn::Set(dd, std::numeric_limits<double>::infinity());
  for (int64_t word = 0; word < row.words; ++word) {
    const uint64_t movable = row.kept[word] & ~row.locked[word];
    const uint64_t pruned = row.columns[word] & ~row.kept[word];
    for (size_t lane = 0; lane < kWord; lane += lanes) {
      const int64_t col = word * kWord + static_cast<int64_t>(lane);
      const auto w = LoadDoubles(dd, row.weights + col);
      const auto e = hn::Load(dd, row.product + col);
      const auto square = hn::Mul(w, hn::Load(dd, row.diagonal + col));
      const auto twice = hn::Add(e, e);
      const auto removed = hn::Mul(w, hn::Add(square, twice));
      const auto restored = hn::Mul(w, hn::Sub(square, twice));
      hn::Store(hn::IfThenElse(MaskAt(dd, movable, lane), removed, infinity), dd, out + col);
      hn::Store(hn::IfThenElse(MaskAt(dd, pruned, lane), restored, infinity), dd, in + col);
    }
  }
}

template <class DD, typename Real>
HWY_INLINE hn::Vec<DD> WithPartner(DD dd, const double* HWY_RESTRICT in,
                                   const Real* HWY_RESTRICT weights,
                                   const Real* HWY_RESTRICT gram_row, hn::Vec<DD> factor) {
  const auto product = hn::Mul(LoadDoubles(dd, weights), LoadDoubles(dd, gram_row));
  return hn::NegMulAdd(factor, product, hn::Load(dd, in));
}

template <typename Real>
double BestPartner(int64_t words, const double* HWY_RESTRICT in, const Real* HWY_RESTRICT weights,
                   const Real* HWY_RESTRICT gram_row, double factor) {
  const hn::ScalableTag<double> dd;
  const auto lanes = static_cast<int64_t>(hn::Lanes(dd));
  const auto factors = hn::Set(dd, factor);
  auto best0 = hn::Set(dd, std::numeric_limits<double>::infinity());
  auto best1 = best0;
  for (int64_t col = 0; col < words * kWord; col += 2 * lanes) {
    const int64_t next = col + lanes;
    best0 = hn::Min(best0, WithPartner(dd, in + col, weights + col, gram_row + col, factors));
    best1 = hn::Min(best1, WithPartner(dd, in + next, weights + next, gram_row + next, factors));
  }
  return hn::GetLane(hn::MinOfLanes(dd, hn::Min(best0, best1)));
}

template <typename Real>
int64_t FindPartner(int64_t words, const double* HWY_RESTRICT in, const Real* HWY_RESTRICT weights,
                    const Real* HWY_RESTRICT gram_row, double factor, double best) {
  const hn::ScalableTag<double> dd;
  const auto lanes = static_cast<int64_t>(hn::Lanes(dd));
  const auto factors = hn::Set(dd, factor);
  const auto wanted = hn::Set(dd, best);
  for (int64_t col = words * kWord - lanes; col >= 0; col -= lanes) {
    const auto value = WithPartner(dd, in + col, weights + col, gram_row + col, factors);
    const uint64_t bits = BitsAt(dd, hn::Eq(value, wanted), 0);
    if (bits != 0) return col + 63 - std::countl_zero(bits);
  }
  return -1;
}

template <typename Real>
void AddTwoRows(int64_t words, double first, const Real* HWY_RESTRICT first_row, double second,
                const Real* HWY_RESTRICT second_row, double* HWY_RESTRICT product) {
  const hn::ScalableTag<double> dd;
  const auto lanes = static_cast<int64_t>(hn::Lanes(dd));
  const auto a = hn::Set(dd, first);
  const auto b = hn::Set(dd, second);
  for (int64_t col = 0; col < words * kWord; col += lanes) {
    const auto with_first =
        hn::MulAdd(a, LoadDoubles(dd, first_row + col), hn::Load(dd, product + col));
    hn::Store(hn::MulAdd(b, LoadDoubles(dd, second_row + col), with_first), dd, product + col);
  }
}

template <typename Real>
constexpr SwapKernels<Real> kSwapKernels = {SwapTerms<Real>, BestPartner<Real>, FindPartner<Real>,
                                            AddTwoRows<Real>};
const SwapKernels<float>* FloatSwapKernels() { return &kSwapKernels<float>; }
const SwapKernels<double>* DoubleSwapKernels() { return &kSwapKernels<double>; }

}  // namespace sparsefw::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsefw::cpu {

SPARSEFW_DISPATCH_TABLES(SwapKernels, KernelsOfSwaps)

}  // namespace sparsefw::cpu
#endif  // HWY_ONCE
