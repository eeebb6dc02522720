#include "server/identity/random_hex.h"

#include <sys/random.h>

#include <cassert>

#include "absl/strings/escaping.h"

namespace sparsefw::server {

absl::StatusOr<std::string> RandomHex(size_t bytes) {
  assert(bytes <= 256);
  std::string bits(bytes, '\0');
  // Requests of up to 256 bytes are neither cut short nor interrupted.
  if (getrandom(bits.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return absl::InternalError("the system must supply random numbers; getrandom failed");
  }
  return absl::BytesToHexString(bits);
}

}  // namespace sparsefw::server
