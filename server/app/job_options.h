// How jobs run, as the configuration and the devices have it.
#ifndef SPARSEFW_SERVER_APP_JOB_OPTIONS_H_
#define SPARSEFW_SERVER_APP_JOB_OPTIONS_H_

#include <cstdint>

#include "server/app/config.h"
#include "server/jobs/job_manager.h"
#include "server/runner/devices.h"
#include "server/runner/solver_runner.h"

namespace sparsefw::server {

// Each worker's share of the cores, at least 1.
int ThreadsPerJob(const ServerConfig& config);

// The limit for what all running jobs hold; where the memory of the machine is unknown, none.
int64_t SolveMemory(const ServerConfig& config);

// Leaves the checkpoints to the caller.
SolverRunnerOptions RunnerOptions(const ServerConfig& config, const DefaultDevice& device);

PoolOptions DevicePoolOptions(const ServerConfig& config);

// Leaves disk_room and limits_of to the caller.
JobManagerOptions ManagerOptions(const ServerConfig& config, const DefaultDevice& device);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_JOB_OPTIONS_H_
