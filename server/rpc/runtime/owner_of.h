// Who owns what a call makes.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_OWNER_OF_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_OWNER_OF_H_

#include <string>
#include <string_view>

#include "grpcpp/grpcpp.h"
#include "server/identity/owner.h"

namespace sparsefw::server {

// `name` is the owner of the request. The server checks no credentials: everybody is
// the default tenant.
inline Owner OwnerOf(const grpc::CallbackServerContext& /*rpc*/, std::string_view name) {
  return {std::string(kDefaultTenant), std::string(name)};
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_OWNER_OF_H_
