#include "server/app/resources.h"

#include <algorithm>
#include <limits>
#include <thread>

namespace sparsefw::server {
namespace {

// Shares of --peer-memory and --connection-memory. A byte that has come in takes more than a byte:
// a message in frames of one byte each takes 5.3 times what is on the wire. So unfinished messages
// may take a tenth of the memory. Messages and responses of calls are in memory twice: in
// protobuf's form and in gRPC's.
constexpr int64_t kUnfinishedShare = 10;
constexpr int64_t kHeldShare = 4;

constexpr int64_t kPeerCalls = 2048;
// The largest messages and the windows of a hundred streams fit what a peer may leave unfinished.
constexpr int kTurns = 9;

// Each worker's share of the cores, at least 1.
int ThreadsPerJob(const ServerConfig& config) {
  if (config.job_threads > 0) return config.job_threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / config.jobs.workers);
}

// The limit for what all running jobs hold; where the memory of the machine is unknown, none.
int64_t SolveMemory(const ServerConfig& config) {
  if (config.solve_memory_bytes > 0) return config.solve_memory_bytes;
  const int64_t there = HostMemoryBytes();
  return there > 0 ? there / 5 * 4 : std::numeric_limits<int64_t>::max();
}

}  // namespace

Connections::Limits ConnectionLimits(const ServerConfig& config) {
  Connections::Limits limits;
  limits.connections = config.max_connections;
  limits.peer_connections = config.max_peer_connections;
  limits.unfinished_bytes = config.connection_memory_bytes / kUnfinishedShare;
  limits.peer_unfinished_bytes = config.peer_memory_bytes / kUnfinishedShare;
  limits.peer.calls = kPeerCalls;
  limits.peer.held_bytes = config.connection_memory_bytes / kHeldShare;
  limits.peer.peer_held_bytes = config.peer_memory_bytes / kHeldShare;
  limits.peer.turns = kTurns;
  limits.peer.allowed_bytes = limits.peer_unfinished_bytes / 4;
  return limits;
}

int64_t GrpcMemory(const ServerConfig& config) { return config.connection_memory_bytes / 4; }

SolverRunnerOptions RunnerOptions(const ServerConfig& config, const DefaultDevice& device) {
  SolverRunnerOptions options;
  options.backends = device.usable;
  options.default_backends = device.pool;
  options.threads_per_job = ThreadsPerJob(config);
  options.solve_memory_bytes = SolveMemory(config);
  for (const PoolDevice& one : PoolDevices(device, config.devices)) {
    options.device_memory_bytes = std::min(options.device_memory_bytes, one.memory_bytes);
  }
  return options;
}

JobManagerOptions ManagerOptions(const ServerConfig& config, const DefaultDevice& device) {
  JobManagerOptions options = config.jobs;
  options.working_memory_bytes = SolveMemory(config);
  options.devices = PoolDevices(device, config.devices);
  return options;
}

}  // namespace sparsefw::server
