#include "core/src/cpu/linalg/kernels.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/src/cpu/linalg/kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sparsefw::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kWordCols = 64;

// Bytes that hold a bit for every lane: what is copied must be just these, or
// the copy waits for memory that was written in other pieces.
template <class D>
constexpr size_t kMaskBytes = (hn::MaxLanes(D()) + 7) / 8;

// The mask of the lanes that start at bit `shift`.
template <class D>
HWY_INLINE hn::Mask<D> LanesOf(D d, uint64_t word, size_t shift) {
  const uint64_t shifted = word >> shift;
  std::array<uint8_t, 8> bytes;
  std::memcpy(bytes.data(), &shifted, sizeof(shifted));
  return hn::LoadMaskBits(d, bytes.data());
}

template <class D, class M>
HWY_INLINE uint64_t BitsOf(D d, M mask, size_t shift) {
  std::array<uint8_t, 8> bytes;
  hn::StoreMaskBits(d, mask, bytes.data());
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data(), kMaskBytes<D>);
  return bits << shift;
}

template <class DD>
HWY_INLINE hn::Vec<DD> LoadDoubles(DD dd, const float* HWY_RESTRICT from) {
  return hn::PromoteTo(dd, hn::LoadU(hn::Rebind<float, DD>(), from));
}
template <class DD>
HWY_INLINE hn::Vec<DD> LoadDoubles(DD dd, const double* HWY_RESTRICT from) {
  return hn::LoadU(dd, from);
}

// One word of MaskedDot; two sums, to hide the latency of the additions.
template <class DD, class V, typename Real>
HWY_INLINE void DotWord(DD dd, const Real* HWY_RESTRICT a, const Real* HWY_RESTRICT b,
                        uint64_t skip, V& sum0, V& sum1) {
  const size_t lanes = hn::Lanes(dd);
  for (size_t col = 0; col < kWordCols; col += 2 * lanes) {
    const size_t next = col + lanes;
    const V a0 = hn::IfThenZeroElse(LanesOf(dd, skip, col), LoadDoubles(dd, a + col));
    const V a1 = hn::IfThenZeroElse(LanesOf(dd, skip, next), LoadDoubles(dd, a + next));
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
HWY_INLINE double ScanAs(const RowOperands<Real>& row, Real step, Real low, Real high,
                         uint64_t* HWY_RESTRICT above, uint64_t* HWY_RESTRICT window) {
  const hn::ScalableTag<Real> d;
  const hn::ScalableTag<double> dd;
  const size_t lanes = hn::Lanes(d);
  const auto steps = hn::Set(d, step);
  const auto lows = hn::Set(d, low);
  const auto highs = hn::Set(d, high);
  auto sum0 = hn::Zero(dd);
  auto sum1 = hn::Zero(dd);
  for (int64_t word = 0; word < row.words; ++word) {
    const int64_t first = word * kWordCols;
    uint64_t over_low = 0;
    uint64_t over_high = 0;
    for (size_t lane = 0; lane < kWordCols; lane += lanes) {
      const int64_t col = first + static_cast<int64_t>(lane);
      const auto e = UpdatedProduct(d, row, col, steps);
      const auto score = hn::Mul(hn::LoadU(d, row.weights + col), e);
      over_low |= BitsOf(d, hn::Gt(score, lows), lane);
      over_high |= BitsOf(d, hn::Gt(score, highs), lane);
    }
    const uint64_t fixed = row.fixed[word];
    above[word] = over_high & ~fixed;
    window[word] = over_low & ~over_high & ~fixed;
    DotWord(dd, row.weights + first, row.product + first, fixed | over_high, sum0, sum1);
  }
  return hn::GetLane(hn::SumOfLanes(dd, hn::Add(sum0, sum1)));
}

template <typename Real>
HWY_INLINE void ScoreAs(const RowOperands<Real>& row, Real step, Real* HWY_RESTRICT scores) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto steps = hn::Set(d, step);
  for (int64_t col = 0; col < row.words * kWordCols; col += lanes) {
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
    const int64_t first = word * kWordCols;
    const uint64_t fixed = row.fixed[word];
    uint64_t selected = 0;
    for (size_t lane = 0; lane < kWordCols; lane += lanes) {
      const int64_t col = first + static_cast<int64_t>(lane);
      const auto e = UpdatedProduct(d, row, col, steps);
      const auto score = hn::Mul(hn::LoadU(d, row.weights + col), e);
      const auto rank = hn::IfThenElse(LanesOf(d, fixed, lane), first_of_all, score);
      const auto chosen =
          hn::And(RanksBelow<kGroup>(d, rank, capacities), hn::Gt(score, hn::Zero(d)));
      selected |= BitsOf(d, chosen, lane);
    }
    vertex[word] = selected & ~fixed;
    DotWord(dd, row.weights + first, row.product + first, fixed | selected, sum0, sum1);
  }
  return hn::GetLane(hn::SumOfLanes(dd, hn::Add(sum0, sum1)));
}

// NaN: no such group fits a vector.
template <typename Real>
HWY_INLINE double SelectGroupsAs(const RowOperands<Real>& row, Real step, int64_t group,
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
  return std::numeric_limits<double>::quiet_NaN();
}

template <typename Real>
HWY_INLINE double DotAs(int64_t words, const Real* HWY_RESTRICT a, const Real* HWY_RESTRICT b,
                        const uint64_t* HWY_RESTRICT skip) {
  const hn::ScalableTag<double> dd;
  auto sum0 = hn::Zero(dd);
  auto sum1 = hn::Zero(dd);
  for (int64_t word = 0; word < words; ++word) {
    DotWord(dd, a + word * kWordCols, b + word * kWordCols, skip[word], sum0, sum1);
  }
  return hn::GetLane(hn::SumOfLanes(dd, hn::Add(sum0, sum1)));
}

template <typename Real>
HWY_INLINE void ZeroAs(int64_t words, const Real* HWY_RESTRICT a, const uint64_t* HWY_RESTRICT skip,
                       Real* HWY_RESTRICT out) {
  const hn::ScalableTag<Real> d;
  const size_t lanes = hn::Lanes(d);
  for (int64_t word = 0; word < words; ++word) {
    for (size_t lane = 0; lane < kWordCols; lane += lanes) {
      const int64_t col = word * kWordCols + static_cast<int64_t>(lane);
      const auto mask = LanesOf(d, skip[word], lane);
      hn::Store(hn::IfThenZeroElse(mask, hn::LoadU(d, a + col)), d, out + col);
    }
  }
}

template <typename Real>
HWY_INLINE void CompressAs(int64_t words, const Real* HWY_RESTRICT a, int64_t word_stride,
                           const uint64_t* HWY_RESTRICT keep, Real* HWY_RESTRICT out) {
  const hn::ScalableTag<Real> d;
  const size_t lanes = hn::Lanes(d);
  for (int64_t word = 0; word < words; ++word, a += word_stride) {
    for (size_t lane = 0; lane < kWordCols; lane += lanes) {
      // Not CompressStore: to memory the instruction is slow on some processors.
      const auto mask = LanesOf(d, keep[word], lane);
      hn::StoreU(hn::Compress(hn::LoadU(d, a + lane), mask), d, out);
      out += hn::CountTrue(d, mask);
    }
  }
}

// The dispatch tables want one plain function for each. (The templates have
// names of their own: these would else call the dispatching overloads again.)

double UpdateAndScanF32(const RowOperands<float>& row, float step, float low, float high,
                        uint64_t* above, uint64_t* window) {
  return ScanAs(row, step, low, high, above, window);
}
void UpdateAndScoreF32(const RowOperands<float>& row, float step, float* scores) {
  ScoreAs(row, step, scores);
}
double UpdateAndSelectF32(const RowOperands<float>& row, float step, int64_t group, float capacity,
                          uint64_t* vertex) {
  return SelectGroupsAs(row, step, group, capacity, vertex);
}
void CompressF32(int64_t words, const float* a, int64_t word_stride, const uint64_t* keep,
                 float* out) {
  CompressAs(words, a, word_stride, keep, out);
}
double MaskedDotF32(int64_t words, const float* a, const float* b, const uint64_t* skip) {
  return DotAs(words, a, b, skip);
}
void ZeroMaskedF32(int64_t words, const float* a, const uint64_t* skip, float* out) {
  ZeroAs(words, a, skip, out);
}

double UpdateAndScanF64(const RowOperands<double>& row, double step, double low, double high,
                        uint64_t* above, uint64_t* window) {
  return ScanAs(row, step, low, high, above, window);
}
void UpdateAndScoreF64(const RowOperands<double>& row, double step, double* scores) {
  ScoreAs(row, step, scores);
}
double UpdateAndSelectF64(const RowOperands<double>& row, double step, int64_t group,
                          double capacity, uint64_t* vertex) {
  return SelectGroupsAs(row, step, group, capacity, vertex);
}
void CompressF64(int64_t words, const double* a, int64_t word_stride, const uint64_t* keep,
                 double* out) {
  CompressAs(words, a, word_stride, keep, out);
}
double MaskedDotF64(int64_t words, const double* a, const double* b, const uint64_t* skip) {
  return DotAs(words, a, b, skip);
}
void ZeroMaskedF64(int64_t words, const double* a, const uint64_t* skip, double* out) {
  ZeroAs(words, a, skip, out);
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace sparsefw::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsefw::cpu {

HWY_EXPORT(TargetName);

HWY_EXPORT(UpdateAndScanF32);
HWY_EXPORT(UpdateAndScoreF32);
HWY_EXPORT(UpdateAndSelectF32);
HWY_EXPORT(CompressF32);
HWY_EXPORT(MaskedDotF32);
HWY_EXPORT(ZeroMaskedF32);

double UpdateAndScan(const RowOperands<float>& row, float step, float low, float high,
                     uint64_t* above, uint64_t* window) {
  return HWY_DYNAMIC_DISPATCH(UpdateAndScanF32)(row, step, low, high, above, window);
}

void UpdateAndScore(const RowOperands<float>& row, float step, float* scores) {
  HWY_DYNAMIC_DISPATCH(UpdateAndScoreF32)(row, step, scores);
}

std::optional<double> UpdateAndSelect(const RowOperands<float>& row, float step, int64_t group,
                                      float capacity, uint64_t* vertex) {
  const double inner = HWY_DYNAMIC_DISPATCH(UpdateAndSelectF32)(row, step, group, capacity, vertex);
  return std::isnan(inner) ? std::nullopt : std::optional(inner);
}

void Compress(int64_t words, const float* a, int64_t word_stride, const uint64_t* keep,
              float* out) {
  HWY_DYNAMIC_DISPATCH(CompressF32)(words, a, word_stride, keep, out);
}

double MaskedDot(int64_t words, const float* a, const float* b, const uint64_t* skip) {
  return HWY_DYNAMIC_DISPATCH(MaskedDotF32)(words, a, b, skip);
}

void ZeroMasked(int64_t words, const float* a, const uint64_t* skip, float* out) {
  HWY_DYNAMIC_DISPATCH(ZeroMaskedF32)(words, a, skip, out);
}

HWY_EXPORT(UpdateAndScanF64);
HWY_EXPORT(UpdateAndScoreF64);
HWY_EXPORT(UpdateAndSelectF64);
HWY_EXPORT(CompressF64);
HWY_EXPORT(MaskedDotF64);
HWY_EXPORT(ZeroMaskedF64);

double UpdateAndScan(const RowOperands<double>& row, double step, double low, double high,
                     uint64_t* above, uint64_t* window) {
  return HWY_DYNAMIC_DISPATCH(UpdateAndScanF64)(row, step, low, high, above, window);
}

void UpdateAndScore(const RowOperands<double>& row, double step, double* scores) {
  HWY_DYNAMIC_DISPATCH(UpdateAndScoreF64)(row, step, scores);
}

std::optional<double> UpdateAndSelect(const RowOperands<double>& row, double step, int64_t group,
                                      double capacity, uint64_t* vertex) {
  const double inner = HWY_DYNAMIC_DISPATCH(UpdateAndSelectF64)(row, step, group, capacity, vertex);
  return std::isnan(inner) ? std::nullopt : std::optional(inner);
}

void Compress(int64_t words, const double* a, int64_t word_stride, const uint64_t* keep,
              double* out) {
  HWY_DYNAMIC_DISPATCH(CompressF64)(words, a, word_stride, keep, out);
}

double MaskedDot(int64_t words, const double* a, const double* b, const uint64_t* skip) {
  return HWY_DYNAMIC_DISPATCH(MaskedDotF64)(words, a, b, skip);
}

void ZeroMasked(int64_t words, const double* a, const uint64_t* skip, double* out) {
  HWY_DYNAMIC_DISPATCH(ZeroMaskedF64)(words, a, skip, out);
}

const char* SimdTargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace sparsefw::cpu
#endif  // HWY_ONCE
