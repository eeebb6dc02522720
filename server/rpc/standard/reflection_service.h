// grpc.reflection.v1alpha: what grpcurl asks instead of reading .proto files.
#ifndef SPARSEFW_SERVER_RPC_STANDARD_REFLECTION_SERVICE_H_
#define SPARSEFW_SERVER_RPC_STANDARD_REFLECTION_SERVICE_H_

#include "server/rpc/runtime/rpc_context.h"
#include "server/rpc/runtime/service.h"

namespace sparsefw::server {

// Replaces gRPC's own, which answers everybody and holds a thread for every open stream. Here a
// stream is a call like any other and needs credentials. Thread-safe; the context outlives it.
class ReflectionService final : public Service {
 public:
  explicit ReflectionService(RpcContext& context);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_STANDARD_REFLECTION_SERVICE_H_
