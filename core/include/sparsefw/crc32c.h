// CRC32C (Castagnoli, RFC 3720), the checksum of every chunk on the wire.
#ifndef SPARSEFW_CRC32C_H_
#define SPARSEFW_CRC32C_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace sparsefw {

// The checksum of all bytes so far, given the checksum `crc` of those before
// `data`; start with 0. Any size. Uses the processor's CRC instruction.
uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> data);

inline uint32_t Crc32c(std::span<const std::byte> data) { return ExtendCrc32c(0, data); }

}  // namespace sparsefw

#endif  // SPARSEFW_CRC32C_H_
