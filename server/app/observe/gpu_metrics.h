// Chooses how the CUDA devices are measured.
#ifndef SPARSEFW_SERVER_APP_OBSERVE_GPU_METRICS_H_
#define SPARSEFW_SERVER_APP_OBSERVE_GPU_METRICS_H_

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "server/app/observe/logging.h"
#include "server/metrics/gpu_monitor.h"
#include "sparsefw/backend.h"

namespace sparsefw::server {

// Null where there is nothing to measure: no CUDA device among `usable`, or period
// 0. Devices without NVML are logged once. The logger outlives the monitor.
std::unique_ptr<GpuMonitor> StartGpuMonitor(const std::vector<const Backend*>& usable,
                                            absl::Duration period, Logger* logger);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_OBSERVE_GPU_METRICS_H_
