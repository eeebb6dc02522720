#include "server/identity/tenant_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace sparsefw::server {

bool IsTenantName(std::string_view name) {
  constexpr size_t kMaxBytes = 64;
  if (name.empty() || name.size() > kMaxBytes) return false;
  const auto alphanumeric = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c));
  };
  return alphanumeric(name.front()) && std::all_of(name.begin(), name.end(), [&](char c) {
           return alphanumeric(c) || c == '.' || c == '_' || c == '@' || c == '-';
         });
}

}  // namespace sparsefw::server
