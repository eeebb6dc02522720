#include "server/tensors/random_id.h"

#include <algorithm>

#include "server/identity/random_hex.h"

namespace sparsefw::server {

absl::StatusOr<std::string> RandomId() { return RandomHex(kIdLength / 2); }

bool IsId(std::string_view text) {
  return text.size() == kIdLength && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace sparsefw::server
