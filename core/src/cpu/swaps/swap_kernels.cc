#include "core/src/cpu/swaps/swap_kernels.h"

#include <array>
#include <bit>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/src/cpu/swaps/swap_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

// Must come after foreach_target.h.
#include "core/src/cpu/linalg/lane_bits-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sparsefw::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kWordCols = 64;

template <class DD>
HWY_INLINE hn::Vec<DD> AsDoubles(DD dd, const float* HWY_RESTRICT from) {
  return hn::PromoteTo(dd, hn::Load(hn::Rebind<float, DD>(), from));
}
template <class DD>
HWY_INLINE hn::Vec<DD> AsDoubles(DD dd, const double* HWY_RESTRICT from) {
  return hn::Load(dd, from);
}

template <typename Real>
HWY_INLINE void TermsAs(const SwapOperands<Real>& row, double* HWY_RESTRICT out,
                        double* HWY_RESTRICT in) {
  const hn::ScalableTag<double> dd;
  const size_t lanes = hn::Lanes(dd);
  const auto infinity = hn::Set(dd, std::numeric_limits<double>::infinity());
  for (int64_t word = 0; word < row.words; ++word) {
    const uint64_t movable = row.kept[word] & ~row.locked[word];
    const uint64_t pruned = row.columns[word] & ~row.kept[word];
    for (size_t lane = 0; lane < kWordCols; lane += lanes) {
      const int64_t col = word * kWordCols + static_cast<int64_t>(lane);
      const auto w = AsDoubles(dd, row.weights + col);
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
  const auto product = hn::Mul(AsDoubles(dd, weights), AsDoubles(dd, gram_row));
  return hn::NegMulAdd(factor, product, hn::Load(dd, in));
}

template <typename Real>
HWY_INLINE double BestPartnerAs(int64_t words, const double* HWY_RESTRICT in,
                                const Real* HWY_RESTRICT weights, const Real* HWY_RESTRICT gram_row,
                                double factor) {
  const hn::ScalableTag<double> dd;
  const auto lanes = static_cast<int64_t>(hn::Lanes(dd));
  const auto factors = hn::Set(dd, factor);
  auto best0 = hn::Set(dd, std::numeric_limits<double>::infinity());
  auto best1 = best0;
  for (int64_t col = 0; col < words * kWordCols; col += 2 * lanes) {
    const int64_t next = col + lanes;
    best0 = hn::Min(best0, WithPartner(dd, in + col, weights + col, gram_row + col, factors));
    best1 = hn::Min(best1, WithPartner(dd, in + next, weights + next, gram_row + next, factors));
  }
  return hn::GetLane(hn::MinOfLanes(dd, hn::Min(best0, best1)));
}

template <typename Real>
HWY_INLINE int64_t FindPartnerAs(int64_t words, const double* HWY_RESTRICT in,
                                 const Real* HWY_RESTRICT weights,
                                 const Real* HWY_RESTRICT gram_row, double factor, double best) {
  const hn::ScalableTag<double> dd;
  const auto lanes = static_cast<int64_t>(hn::Lanes(dd));
  const auto factors = hn::Set(dd, factor);
  const auto wanted = hn::Set(dd, best);
  for (int64_t col = words * kWordCols - lanes; col >= 0; col -= lanes) {
    const auto value = WithPartner(dd, in + col, weights + col, gram_row + col, factors);
    std::array<uint8_t, 8> bytes{};
    hn::StoreMaskBits(dd, hn::Eq(value, wanted), bytes.data());
    uint64_t bits;
    std::memcpy(&bits, bytes.data(), sizeof(bits));
    if (bits != 0) return col + 63 - std::countl_zero(bits);
  }
  return -1;
}

template <typename Real>
HWY_INLINE void AddTwoRowsAs(int64_t words, double first, const Real* HWY_RESTRICT first_row,
                             double second, const Real* HWY_RESTRICT second_row,
                             double* HWY_RESTRICT product) {
  const hn::ScalableTag<double> dd;
  const auto lanes = static_cast<int64_t>(hn::Lanes(dd));
  const auto a = hn::Set(dd, first);
  const auto b = hn::Set(dd, second);
  for (int64_t col = 0; col < words * kWordCols; col += lanes) {
    const auto with_first =
        hn::MulAdd(a, AsDoubles(dd, first_row + col), hn::Load(dd, product + col));
    hn::Store(hn::MulAdd(b, AsDoubles(dd, second_row + col), with_first), dd, product + col);
  }
}

// The names that HWY_EXPORT takes are one a precision.
void TermsF32(const SwapOperands<float>& row, double* out, double* in) { TermsAs(row, out, in); }
void TermsF64(const SwapOperands<double>& row, double* out, double* in) { TermsAs(row, out, in); }
double BestF32(int64_t words, const double* in, const float* w, const float* g, double factor) {
  return BestPartnerAs(words, in, w, g, factor);
}
double BestF64(int64_t words, const double* in, const double* w, const double* g, double factor) {
  return BestPartnerAs(words, in, w, g, factor);
}
int64_t FindF32(int64_t words, const double* in, const float* w, const float* g, double factor,
                double best) {
  return FindPartnerAs(words, in, w, g, factor, best);
}
int64_t FindF64(int64_t words, const double* in, const double* w, const double* g, double factor,
                double best) {
  return FindPartnerAs(words, in, w, g, factor, best);
}
void AddF32(int64_t words, double a, const float* x, double b, const float* y, double* out) {
  AddTwoRowsAs(words, a, x, b, y, out);
}
void AddF64(int64_t words, double a, const double* x, double b, const double* y, double* out) {
  AddTwoRowsAs(words, a, x, b, y, out);
}

}  // namespace sparsefw::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsefw::cpu {

HWY_EXPORT(TermsF32);
HWY_EXPORT(TermsF64);
HWY_EXPORT(BestF32);
HWY_EXPORT(BestF64);
HWY_EXPORT(FindF32);
HWY_EXPORT(FindF64);
HWY_EXPORT(AddF32);
HWY_EXPORT(AddF64);

void SwapTerms(const SwapOperands<float>& row, double* out, double* in) {
  HWY_DYNAMIC_DISPATCH(TermsF32)(row, out, in);
}
void SwapTerms(const SwapOperands<double>& row, double* out, double* in) {
  HWY_DYNAMIC_DISPATCH(TermsF64)(row, out, in);
}
double BestPartner(int64_t words, const double* in, const float* weights, const float* gram_row,
                   double factor) {
  return HWY_DYNAMIC_DISPATCH(BestF32)(words, in, weights, gram_row, factor);
}
double BestPartner(int64_t words, const double* in, const double* weights, const double* gram_row,
                   double factor) {
  return HWY_DYNAMIC_DISPATCH(BestF64)(words, in, weights, gram_row, factor);
}
int64_t FindPartner(int64_t words, const double* in, const float* weights, const float* gram_row,
                    double factor, double best) {
  return HWY_DYNAMIC_DISPATCH(FindF32)(words, in, weights, gram_row, factor, best);
}
int64_t FindPartner(int64_t words, const double* in, const double* weights, const double* gram_row,
                    double factor, double best) {
  return HWY_DYNAMIC_DISPATCH(FindF64)(words, in, weights, gram_row, factor, best);
}
void AddTwoRows(int64_t words, double first, const float* first_row, double second,
                const float* second_row, double* product) {
  HWY_DYNAMIC_DISPATCH(AddF32)(words, first, first_row, second, second_row, product);
}
void AddTwoRows(int64_t words, double first, const double* first_row, double second,
                const double* second_row, double* product) {
  HWY_DYNAMIC_DISPATCH(AddF64)(words, first, first_row, second, second_row, product);
}

}  // namespace sparsefw::cpu
#endif  // HWY_ONCE
