// How the memory of connections is divided.
#ifndef SPARSEFW_SERVER_APP_CONNECTION_LIMITS_H_
#define SPARSEFW_SERVER_APP_CONNECTION_LIMITS_H_

#include "server/app/config.h"
#include "server/net/connections.h"

namespace sparsefw::server {

Connections::Limits ConnectionLimits(const ServerConfig& config);
// What gRPC may take, before it cancels calls of whomever.
int64_t GrpcMemory(const ServerConfig& config);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_CONNECTION_LIMITS_H_
