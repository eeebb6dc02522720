// Chooses how the CUDA devices are measured.
#ifndef SPARSEFW_SERVER_APP_GPU_METRICS_H_
#define SPARSEFW_SERVER_APP_GPU_METRICS_H_

#include <memory>

#include "absl/time/time.h"
#include "server/app/logging.h"
#include "server/metrics/gpu_monitor.h"

namespace sparsefw::server {

// Null where nothing is to be measured: no CUDA device, or no period (0). That
// there are devices and no NVML is logged once. The logger outlives the monitor.
std::unique_ptr<GpuMonitor> StartGpuMonitor(absl::Duration period, Logger* logger);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_GPU_METRICS_H_
