// Calls of methods that there are not.
#ifndef SPARSEFW_SERVER_RPC_STANDARD_UNKNOWN_SERVICE_H_
#define SPARSEFW_SERVER_RPC_STANDARD_UNKNOWN_SERVICE_H_

#include "grpcpp/generic/async_generic_service.h"
#include "server/rpc/runtime/rpc_context.h"

namespace sparsefw::server {

// UNIMPLEMENTED, as gRPC itself would answer; but what such a call brings, and keeps until its
// end is read, counts for its peer like that of any other. Thread-safe; the context outlives it.
class UnknownService final : public grpc::CallbackGenericService {
 public:
  explicit UnknownService(RpcContext& context) : context_(context) {}

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* rpc) override;

  RpcContext& context_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_STANDARD_UNKNOWN_SERVICE_H_
