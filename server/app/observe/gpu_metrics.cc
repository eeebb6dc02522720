#include "server/app/observe/gpu_metrics.h"

#include <string>
#include <utility>
#include <vector>

#include "server/metrics/nvml_api.h"
#include "server/metrics/nvml_sampler.h"
#include "server/runner/devices.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

std::vector<GpuDevice> CardsOf(const std::vector<const Backend*>& usable) {
  std::vector<GpuDevice> cards;
  for (DeviceDescription& device : DescribeDevices(usable)) {
    if (device.pci_bus_id.empty()) continue;
    cards.push_back({std::move(device.name), std::move(device.pci_bus_id)});
  }
  return cards;
}

absl::StatusOr<GpuSampler> Open(const std::vector<GpuDevice>& cards) {
  SPARSEFW_ASSIGN_OR_RETURN(const NvmlApi nvml, LoadNvml());
  return OpenNvmlSampler(nvml, cards);
}

}  // namespace

std::unique_ptr<GpuMonitor> StartGpuMonitor(const std::vector<const Backend*>& usable,
                                            absl::Duration period, Logger* logger) {
  if (period <= absl::ZeroDuration()) return nullptr;
  std::vector<GpuDevice> cards = CardsOf(usable);
  if (cards.empty()) return nullptr;
  GpuMonitorOptions options;
  options.open = [cards = std::move(cards)] { return Open(cards); };
  options.on_failure = [logger](const absl::Status& status) {
    const absl::string_view reason = status.message();
    logger->Log(LogLevel::kWarning, "no GPU metrics",
                {{"reason", std::string(reason.data(), reason.size())}});
  };
  options.period = period;
  return std::make_unique<GpuMonitor>(std::move(options));
}

}  // namespace sparsefw::server
