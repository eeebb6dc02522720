// Names that cannot be guessed.
#ifndef SPARSEFW_SERVER_IDENTITY_RANDOM_HEX_H_
#define SPARSEFW_SERVER_IDENTITY_RANDOM_HEX_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sparsefw::server {

// 8 * `bytes` random bits of the system in lower-case hexadecimal; at most 256 bytes. Nothing
// follows from others that were seen.
// Errors: Internal  the system has no random numbers
absl::StatusOr<std::string> RandomHex(size_t bytes);

// Ids of tensors and their files: 128 random bits.
inline constexpr size_t kIdLength = 32;
inline absl::StatusOr<std::string> RandomId() { return RandomHex(kIdLength / 2); }
bool IsId(std::string_view text);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_IDENTITY_RANDOM_HEX_H_
