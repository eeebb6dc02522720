// The services of the gRPC port, beside grpc.health.v1 (health_service.h). All are thread-safe, and
// the context outlives them.
#ifndef SPARSEFW_SERVER_RPC_SERVICES_H_
#define SPARSEFW_SERVER_RPC_SERVICES_H_

#include "grpcpp/generic/async_generic_service.h"
#include "server/rpc/runtime/rpc_context.h"
#include "server/rpc/runtime/service.h"

namespace sparsefw::server {

// The control plane, over the job manager.
class PruneServiceImpl final : public Service {
 public:
  explicit PruneServiceImpl(RpcContext& context);
};

// The data plane, over the tensor store.
class TensorServiceImpl final : public Service {
 public:
  explicit TensorServiceImpl(RpcContext& context);
};

// grpc.reflection.v1alpha: what grpcurl asks instead of reading .proto files. Replaces gRPC's own,
// which answers everybody and holds a thread for every open stream. Here a stream is a call like
// any other and needs credentials.
class ReflectionService final : public Service {
 public:
  explicit ReflectionService(RpcContext& context);
};

// Calls of methods that there are not: UNIMPLEMENTED, as gRPC itself would answer; but what such a
// call brings, and keeps until its end is read, counts for its peer like that of any other.
class UnknownService final : public grpc::CallbackGenericService {
 public:
  explicit UnknownService(RpcContext& context) : context_(context) {}

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* rpc) override;

  RpcContext& context_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_SERVICES_H_
