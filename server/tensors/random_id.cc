#include "server/tensors/random_id.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace sparsefw::server {

absl::StatusOr<std::string> RandomId() {
  std::array<uint64_t, 2> bits{};
  // Requests of up to 256 bytes are neither cut short nor interrupted.
  if (getrandom(bits.data(), sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits))) {
    return absl::InternalError("the system must supply random numbers; getrandom failed");
  }
  return absl::StrFormat("%016x%016x", bits[0], bits[1]);
}

bool IsId(std::string_view text) {
  return text.size() == kIdLength && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace sparsefw::server
