// The data plane, over the tensor store.
#ifndef SPARSEFW_SERVER_RPC_TENSORS_TENSOR_SERVICE_H_
#define SPARSEFW_SERVER_RPC_TENSORS_TENSOR_SERVICE_H_

#include "server/rpc/runtime/rpc_context.h"
#include "server/rpc/runtime/service.h"

namespace sparsefw::server {

// Thread-safe; the context outlives it.
class TensorServiceImpl final : public Service {
 public:
  explicit TensorServiceImpl(RpcContext& context);

 private:
  void AddStreams(RpcContext& context);
  void AddUploadCalls(RpcContext& context);
  void AddTensorCalls(RpcContext& context);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_TENSORS_TENSOR_SERVICE_H_
