// The credentials of a call, out of gRPC's hands.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_CALLER_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_CALLER_H_

#include <string>
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

// Whose limits a call comes under where nobody needs credentials: the text of PeerKeyOf, or
// `peer`, gRPC's name, where that is no address.
std::string AddressKey(std::string_view peer);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_CALLER_H_
