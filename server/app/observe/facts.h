// What the server finds out about itself and its machine, and says to clients (GetServerInfo), in
// its metrics and in its log.
#ifndef SPARSEFW_SERVER_APP_OBSERVE_FACTS_H_
#define SPARSEFW_SERVER_APP_OBSERVE_FACTS_H_

#include <cstdint>
#include <vector>

#include "server/app/config.h"
#include "server/app/observe/logging.h"
#include "server/app/runner/devices.h"
#include "server/metrics/prometheus_metrics.h"
#include "server/rpc/runtime/rpc_context.h"

namespace sparsefw::server {

ServerFacts FactsOf(const ServerConfig& config, const DefaultDevice& device);

std::vector<DeviceInfo> DeviceInfos(const DefaultDevice& device);

// Devices that there are and that cannot be used, with the reason.
void LogMissingDevices(Logger& logger);

// Each worker's share of the cores, at least 1.
int ThreadsPerJob(const ServerConfig& config);

// The limit for what all running jobs hold; where the memory of the machine is unknown, none.
int64_t SolveMemory(const ServerConfig& config);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_OBSERVE_FACTS_H_
