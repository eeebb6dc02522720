#include "server/app/job_options.h"

#include <algorithm>
#include <limits>
#include <thread>

namespace sparsefw::server {

int ThreadsPerJob(const ServerConfig& config) {
  if (config.job_threads > 0) return config.job_threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / config.workers);
}

int64_t SolveMemory(const ServerConfig& config) {
  if (config.solve_memory_bytes > 0) return config.solve_memory_bytes;
  const int64_t there = HostMemoryBytes();
  return there > 0 ? there / 5 * 4 : std::numeric_limits<int64_t>::max();
}

SolverRunnerOptions RunnerOptions(const ServerConfig& config, const DefaultDevice& device) {
  SolverRunnerOptions options;
  options.backends = device.usable;
  options.default_backends = device.pool;
  options.threads_per_job = ThreadsPerJob(config);
  options.solve_memory_bytes = SolveMemory(config);
  return options;
}

PoolOptions DevicePoolOptions(const ServerConfig& config) {
  return {.memory_bytes = config.device_memory_bytes,
          .memory_share = config.device_memory_share,
          .streams = config.streams_per_device};
}

JobManagerOptions ManagerOptions(const ServerConfig& config, const DefaultDevice& device) {
  JobManagerOptions options;
  options.workers = config.workers;
  options.max_queued_jobs = config.max_queued_jobs;
  options.max_job_bytes = config.max_job_bytes;
  options.max_result_ttl = config.max_result_ttl;
  options.max_attempts = config.max_attempts;
  options.starvation_limit = config.starvation_limit;
  options.working_memory_bytes = SolveMemory(config);
  options.devices = PoolDevices(device, DevicePoolOptions(config));
  return options;
}

}  // namespace sparsefw::server
