#include "server/app/observe/facts.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "server/app/settings.h"

namespace sparsefw::server {

ServerFacts FactsOf(const ServerConfig& config, const DefaultDevice& device) {
  ServerFacts facts;
  facts.version = SPARSEFW_VERSION;
  facts.default_device = device.device.name;
  facts.default_device_reason = device.reason;
  facts.workers = config.workers;
  facts.max_queued_jobs = config.max_queued_jobs;
  facts.max_tensor_bytes = std::min(config.max_tensor_bytes, config.host_memory_bytes);
  facts.start_time = absl::Now();
  facts.settings = SettingsForClients(config.settings);
  facts.devices = [usable = device.usable] { return DescribeDevices(usable); };
  return facts;
}

std::vector<DeviceInfo> DeviceInfos(const DefaultDevice& device) {
  std::vector<DeviceInfo> infos;
  for (DeviceDescription& usable : DescribeDevices(device.usable)) {
    const bool is_default = usable.name == device.device.name;
    infos.push_back({std::move(usable.name), std::move(usable.description), is_default,
                     is_default ? device.reason : ""});
  }
  return infos;
}

void LogMissingDevices(Logger& logger) {
  for (const DeviceProbe& probe : ProbeDevices()) {
    if (probe.available) continue;
    logger.Log(LogLevel::kInfo, "no device", {{"device", probe.name}, {"reason", probe.reason}});
  }
}

int ThreadsPerJob(const ServerConfig& config) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / config.workers);
}

int64_t SolveMemory(const ServerConfig& config) {
  if (config.solve_memory_bytes > 0) return config.solve_memory_bytes;
  const int64_t there = HostMemoryBytes();
  return there > 0 ? there / 5 * 4 : std::numeric_limits<int64_t>::max();
}

}  // namespace sparsefw::server
