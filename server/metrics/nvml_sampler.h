// Measures GPUs through NVML.
#ifndef SPARSEFW_SERVER_METRICS_NVML_SAMPLER_H_
#define SPARSEFW_SERVER_METRICS_NVML_SAMPLER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "server/metrics/gpu_sample.h"
#include "server/metrics/nvml_api.h"

namespace sparsefw::server {

// Starts NVML, which ends with the last copy of the sampler, and looks the
// devices up by their PCI bus ids: NVML's numbers are not CUDA's, and
// CUDA_VISIBLE_DEVICES changes only CUDA's. A device that NVML does not know is
// left out of the samples. Not thread-safe; may block as NVML may.
// Errors: FailedPrecondition  NVML does not start, or knows none of the devices
absl::StatusOr<GpuSampler> OpenNvmlSampler(const NvmlApi& nvml,
                                           const std::vector<GpuDevice>& devices);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_NVML_SAMPLER_H_
