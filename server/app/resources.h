// How the configuration divides memory, threads and devices among connections and jobs.
#ifndef SPARSEFW_SERVER_APP_RESOURCES_H_
#define SPARSEFW_SERVER_APP_RESOURCES_H_

#include <cstdint>

#include "server/app/config.h"
#include "server/jobs/job_manager.h"
#include "server/net/connections.h"
#include "server/runner/devices.h"
#include "server/runner/solver_runner.h"

namespace sparsefw::server {

Connections::Limits ConnectionLimits(const ServerConfig& config);
// What gRPC may take, before it cancels calls of whomever.
int64_t GrpcMemory(const ServerConfig& config);

// Leaves the checkpoints to the caller.
SolverRunnerOptions RunnerOptions(const ServerConfig& config, const DefaultDevice& device);

// Leaves disk_room and limits_of to the caller.
JobManagerOptions ManagerOptions(const ServerConfig& config, const DefaultDevice& device);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_RESOURCES_H_
