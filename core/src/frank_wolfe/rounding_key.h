// The key that orders entries of the relaxed mask when it is rounded, on
// the host and in kernels.
#ifndef SPARSEFW_CORE_SRC_FRANK_WOLFE_ROUNDING_KEY_H_
#define SPARSEFW_CORE_SRC_FRANK_WOLFE_ROUNDING_KEY_H_

#include <cstdint>

#include "core/src/base/host_device.h"
#include "core/src/select/ordered_key.h"

namespace sparsefw {

// Open-loop steps give every vertex a weight that is a multiple of
// 2/(T(T+1)), so entries of different histories are often equal but for
// rounding. Compared to this many bits they are, and the saliency decides.
inline constexpr int kEntryBits = 20;
inline constexpr int kRoundingKeyBits = kEntryBits + 1 + 32;

// The larger key is kept first: of a larger entry, in [0, 1], then of a larger
// saliency. Never 0.
SPARSEFW_HOST_DEVICE inline uint64_t RoundingKey(double entry, float saliency) {
  const auto rounded = static_cast<uint64_t>(entry * static_cast<double>(1 << kEntryBits) + 0.5);
  return rounded << 32 | OrderedKey(saliency);
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_FRANK_WOLFE_ROUNDING_KEY_H_
