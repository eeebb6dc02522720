#include "sparsefw/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <limits>

namespace sparsefw {

uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> data) {
  // crc32_iscsi takes an int length and leaves the two inversions of RFC 3720 to us.
  constexpr size_t kMaxPiece = size_t{1} << 30;
  static_assert(kMaxPiece <= static_cast<size_t>(std::numeric_limits<int>::max()));
  uint32_t state = ~crc;
  while (!data.empty()) {
    const size_t count = std::min(data.size(), kMaxPiece);
    // The library's signature lacks const; it does not write.
    auto* bytes = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(data.data()));
    state = crc32_iscsi(bytes, static_cast<int>(count), state);
    data = data.subspan(count);
  }
  return ~state;
}

}  // namespace sparsefw
