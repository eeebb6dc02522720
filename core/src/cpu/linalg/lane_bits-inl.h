// Bits of a word and lanes of a vector, for the kernels. Included once for every
// instruction set, as Highway's own headers of that kind.
#if defined(SPARSEFW_CORE_SRC_CPU_LINALG_LANE_BITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPARSEFW_CORE_SRC_CPU_LINALG_LANE_BITS_INL_H_
#undef SPARSEFW_CORE_SRC_CPU_LINALG_LANE_BITS_INL_H_
#else
#define SPARSEFW_CORE_SRC_CPU_LINALG_LANE_BITS_INL_H_
#endif

#include <array>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sparsefw::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kWord = 64;

template <class D>
constexpr size_t kBytesOfMask = (hn::MaxLanes(D()) + 7) / 8;

template <class D, class M>
HWY_INLINE uint64_t BitsAt(D d, M mask, size_t shift) {
  std::array<uint8_t, 8> bytes;
  hn::StoreMaskBits(d, mask, bytes.data());
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data(), kBytesOfMask<D>);
  return bits << shift;
}

template <class D>
HWY_INLINE hn::Mask<D> MaskAt(D d, uint64_t word, size_t shift) {
  const uint64_t shifted = word >> shift;
  std::array<uint8_t, 8> bytes;
  std::memcpy(bytes.data(), &shifted, sizeof(shifted));
  return hn::LoadMaskBits(d, bytes.data());
}

template <class DD>
HWY_INLINE hn::Vec<DD> LoadDoubles(DD dd, const float* HWY_RESTRICT from) {
  return hn::PromoteTo(dd, hn::LoadU(hn::Rebind<float, DD>(), from));
}
template <class DD>
HWY_INLINE hn::Vec<DD> LoadDoubles(DD dd, const double* HWY_RESTRICT from) {
  return hn::LoadU(dd, from);
}

}  // namespace sparsefw::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SPARSEFW_CORE_SRC_CPU_LINALG_LANE_BITS_INL_H_
