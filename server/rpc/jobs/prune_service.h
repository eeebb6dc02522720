// The control plane, over the job manager.
#ifndef SPARSEFW_SERVER_RPC_JOBS_PRUNE_SERVICE_H_
#define SPARSEFW_SERVER_RPC_JOBS_PRUNE_SERVICE_H_

#include "server/rpc/runtime/rpc_context.h"
#include "server/rpc/runtime/service.h"

namespace sparsefw::server {

// Thread-safe; the context outlives it.
class PruneServiceImpl final : public Service {
 public:
  explicit PruneServiceImpl(RpcContext& context);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_JOBS_PRUNE_SERVICE_H_
