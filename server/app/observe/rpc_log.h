// The log line of a call.
#ifndef SPARSEFW_SERVER_APP_OBSERVE_RPC_LOG_H_
#define SPARSEFW_SERVER_APP_OBSERVE_RPC_LOG_H_

#include "server/app/observe/logging.h"
#include "server/rpc/runtime/rpc_context.h"

namespace sparsefw::server {

// Event `rpc`: method, code, ms, peer; tenant, job (or tensor, upload), request_id,
// traceparent and message where there is one. Level info for errors, debug for calls
// that succeed or that the client gives up.
void LogRpc(const RpcRecord& record, Logger* logger);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_OBSERVE_RPC_LOG_H_
