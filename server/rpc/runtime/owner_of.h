// Who a call acts for.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_OWNER_OF_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_OWNER_OF_H_

#include <string>
#include <string_view>

#include "grpcpp/grpcpp.h"
#include "server/identity/owner.h"

namespace sparsefw::server {

// `name`: what the client calls itself.
inline Owner OwnerOf(const grpc::CallbackServerContext& /*rpc*/, std::string_view name) {
  return {std::string(kDefaultTenant), std::string(name)};
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_OWNER_OF_H_
