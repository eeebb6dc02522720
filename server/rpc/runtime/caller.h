// The credentials of a call, out of gRPC's hands.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_CALLER_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_CALLER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "grpcpp/server_context.h"
#include "server/identity/authenticator.h"

namespace sparsefw::server {

// Who calls. Asked for every call: what gRPC's AuthContext holds is of the whole
// connection, and an AuthMetadataProcessor that adds to it passes the identity of
// one call on to the next. Errors: Authenticator's.
absl::StatusOr<Identity> Authenticate(const Authenticator& authenticator,
                                      const grpc::ServerContextBase& rpc);

// The address in gRPC's name of a peer, without its port: "ipv4:10.0.0.7".
std::string_view HostOf(std::string_view peer);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_CALLER_H_
