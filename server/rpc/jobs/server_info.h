// PruneService.GetServerInfo.
#ifndef SPARSEFW_SERVER_RPC_JOBS_SERVER_INFO_H_
#define SPARSEFW_SERVER_RPC_JOBS_SERVER_INFO_H_

#include "server/rpc/runtime/rpc_context.h"
#include "sparsefw/v1/prune_service.pb.h"

namespace sparsefw::server {

// Abilities and present load of this server.
v1::ServerInfo ServerInfoOf(const RpcContext& context);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_JOBS_SERVER_INFO_H_
