#include "server/app/observe/facts.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "server/app/settings.h"
#include "server/metrics/nvml.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/steady_time.h"

namespace sparsefw::server {

namespace {

int64_t FreeBytes(const Backend& backend, const DeviceDescription& description,
                  const std::map<std::string, int64_t>& at_start,
                  const std::vector<GpuSample>& samples) {
  if (!backend.has_device_memory()) return backend.FreeMemoryBytes().value_or(0);
  for (const GpuSample& sample : samples) {
    if (sample.device != description.name || !sample.memory.has_value()) continue;
    // NVML measures the whole card, also where the device is a part of it.
    return std::min(sample.memory->total_bytes - sample.memory->used_bytes,
                    description.memory_bytes);
  }
  return at_start.at(description.name);
}

}  // namespace

std::unique_ptr<GpuMonitor> StartGpuMonitor(const std::vector<const Backend*>& usable,
                                            absl::Duration period, Logger* logger) {
  if (period <= absl::ZeroDuration()) return nullptr;
  std::vector<GpuDevice> cards;
  for (const Backend* backend : usable) {
    DeviceDescription device = backend->Describe();
    if (device.pci_bus_id.empty()) continue;
    cards.push_back({std::move(device.name), std::move(device.pci_bus_id)});
  }
  if (cards.empty()) return nullptr;
  GpuMonitorOptions options;
  options.open = [cards = std::move(cards)]() -> absl::StatusOr<GpuSampler> {
    SPARSEFW_ASSIGN_OR_RETURN(const NvmlApi nvml, LoadNvml());
    return OpenNvmlSampler(nvml, cards);
  };
  options.on_failure = [logger](const absl::Status& status) {
    logger->Log(LogLevel::kWarning, "no GPU metrics", {{"reason", std::string(status.message())}});
  };
  options.period = period;
  return std::make_unique<GpuMonitor>(std::move(options));
}

ServerFacts FactsOf(const ServerConfig& config, const DefaultDevice& device,
                    std::function<std::vector<GpuSample>()> samples) {
  ServerFacts facts;
  facts.info.set_version(SPARSEFW_VERSION);
  facts.info.set_default_device(device.device.name);
  facts.info.set_default_device_reason(device.reason);
  facts.info.set_workers(config.jobs.workers);
  facts.info.set_max_queued_jobs(config.jobs.max_queued_jobs);
  facts.info.set_max_tensor_bytes(
      std::min(config.tensors.max_tensor_bytes, config.tensors.budget_bytes));
  const std::vector<v1::Setting> settings = SettingsForClients(config.settings);
  facts.info.mutable_settings()->Add(settings.begin(), settings.end());
  facts.start_time = absl::Now();
  facts.steady_start_time = SteadyNow();
  facts.devices = [usable = device.usable, free = device.free_bytes, samples = std::move(samples)] {
    const std::vector<GpuSample> measured = samples();
    std::vector<v1::Device> devices;
    for (const Backend* backend : usable) {
      const DeviceDescription description = backend->Describe();
      v1::Device& proto = devices.emplace_back();
      proto.set_name(description.name);
      proto.set_description(description.description);
      proto.set_memory_bytes(description.memory_bytes);
      proto.set_memory_free_bytes(FreeBytes(*backend, description, free, measured));
    }
    return devices;
  };
  return facts;
}

std::vector<DeviceInfo> DeviceInfos(const DefaultDevice& device) {
  std::vector<DeviceInfo> infos;
  for (const Backend* backend : device.usable) {
    DeviceDescription usable = backend->Describe();
    const bool is_default = usable.name == device.device.name;
    infos.push_back({std::move(usable.name), std::move(usable.description), is_default,
                     is_default ? device.reason : ""});
  }
  return infos;
}

void LogMissingDevices(const DefaultDevice& device, Logger& logger) {
  for (const DeviceProbe& probe : ProbeDevices()) {
    if (probe.available) continue;
    logger.Log(LogLevel::kInfo, "no device", {{"device", probe.name}, {"reason", probe.reason}});
  }
  for (const UnusableDevice& one : device.unusable) {
    logger.Log(LogLevel::kWarning, "device_unavailable",
               {{"device", one.name}, {"reason", one.reason}});
  }
}

}  // namespace sparsefw::server
