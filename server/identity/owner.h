// Who owns a job, a tensor or an upload.
#ifndef SPARSEFW_SERVER_IDENTITY_OWNER_H_
#define SPARSEFW_SERVER_IDENTITY_OWNER_H_

#include <string>
#include <string_view>

namespace sparsefw::server {

// The tenant of everybody while the server checks no credentials.
inline constexpr std::string_view kDefaultTenant = "default";

// `tenant` comes from the credentials of the call and decides who may see and
// use what is owned; a tenant's request ids are its own. `name` is free text of
// the client, for its own use.
struct Owner {
  std::string tenant = std::string(kDefaultTenant);
  std::string name = {};
  friend bool operator==(const Owner&, const Owner&) = default;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_IDENTITY_OWNER_H_
