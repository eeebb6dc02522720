// Unsigned integers in the order of floating-point numbers: the keys of every
// selection, on the host and in CUDA kernels.
#ifndef SPARSEFW_CORE_SRC_SELECT_ORDERED_KEY_H_
#define SPARSEFW_CORE_SRC_SELECT_ORDERED_KEY_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/src/base/host_device.h"

namespace sparsefw {

// OrderedKey(a) < OrderedKey(b) exactly where a < b; -0 and 0 have one key; no
// number has key 0. The order of NaN is not defined.
SPARSEFW_HOST_DEVICE inline uint32_t OrderedKey(float value) {
  value += 0.0F;  // -0 becomes 0
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return (bits >> 31) != 0 ? ~bits : bits | (uint32_t{1} << 31);
}
SPARSEFW_HOST_DEVICE inline uint64_t OrderedKey(double value) {
  value += 0.0;
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return (bits >> 63) != 0 ? ~bits : bits | (uint64_t{1} << 63);
}

// The value of a key.
template <typename Real>
Real ValueOfKey(uint64_t key) {
  constexpr int kSignBit = 8 * static_cast<int>(sizeof(Real)) - 1;
  using Bits = std::conditional_t<sizeof(Real) == 4, uint32_t, uint64_t>;
  const auto ordered = static_cast<Bits>(key);
  const Bits bits = (ordered >> kSignBit) != 0 ? ordered ^ (Bits{1} << kSignBit) : ~ordered;
  Real value = 0;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SELECT_ORDERED_KEY_H_
