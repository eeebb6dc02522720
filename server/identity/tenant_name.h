// Names of tenants, in files and certificates.
#ifndef SPARSEFW_SERVER_IDENTITY_TENANT_NAME_H_
#define SPARSEFW_SERVER_IDENTITY_TENANT_NAME_H_

#include <string_view>

namespace sparsefw::server {

// 1 to 64 letters, digits, '.', '_', '@' and '-', the first a letter or a digit:
// safe in logs, as a key of a file, and beside a colon.
bool IsTenantName(std::string_view name);

// The rule, for messages.
inline constexpr std::string_view kTenantNameRule =
    "1 to 64 letters, digits, '.', '_', '@' and '-', beginning with a letter or a digit";

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_IDENTITY_TENANT_NAME_H_
