// Names that cannot be guessed.
#ifndef SPARSEFW_SERVER_IDENTITY_RANDOM_HEX_H_
#define SPARSEFW_SERVER_IDENTITY_RANDOM_HEX_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace sparsefw::server {

// 8 * `bytes` random bits of the system in lower-case hexadecimal; at most 256 bytes. Nothing
// follows from others that were seen.
// Errors: Internal  the system has no random numbers
absl::StatusOr<std::string> RandomHex(size_t bytes);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_IDENTITY_RANDOM_HEX_H_
