// Facts about the server and its machine, for clients (GetServerInfo), metrics and the log.
#ifndef SPARSEFW_SERVER_APP_OBSERVE_FACTS_H_
#define SPARSEFW_SERVER_APP_OBSERVE_FACTS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "server/app/config.h"
#include "server/app/observe/logging.h"
#include "server/metrics/gpu_monitor.h"
#include "server/metrics/metrics.h"
#include "server/rpc/runtime/rpc_context.h"
#include "server/runner/devices.h"

namespace sparsefw::server {

// Null where there is nothing to measure: no CUDA device among `usable`, or period
// 0. Devices without NVML are logged once. The logger outlives the monitor.
std::unique_ptr<GpuMonitor> StartGpuMonitor(const std::vector<const Backend*>& usable,
                                            absl::Duration period, Logger* logger);

// `samples`: the latest measurements of the cards; may be called by any thread. The memory of a
// card that has none is said to be as free as it was at the start: no call waits for a driver.
ServerFacts FactsOf(const ServerConfig& config, const DefaultDevice& device,
                    std::function<std::vector<GpuSample>()> samples);

std::vector<DeviceInfo> DeviceInfos(const DefaultDevice& device);

// Devices that are missing or cannot be used, with the reason.
void LogMissingDevices(const DefaultDevice& device, Logger& logger);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_OBSERVE_FACTS_H_
