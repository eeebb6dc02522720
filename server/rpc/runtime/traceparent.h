// The W3C trace context of a call (https://www.w3.org/TR/trace-context/).
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_TRACEPARENT_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_TRACEPARENT_H_

#include <string>
#include <string_view>

#include "grpcpp/server_context.h"

namespace sparsefw::server {

// Version 00, in lower case: 00-<32 hex: trace>-<16 hex: span>-<2 hex: flags>, neither
// trace nor span all zeros.
bool IsTraceparent(std::string_view text);

// The value of the call's header `traceparent`; empty without one, with several, and
// with anything that IsTraceparent refuses.
std::string TraceparentOf(const grpc::ServerContextBase& rpc);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_TRACEPARENT_H_
