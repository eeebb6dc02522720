// Measures GPUs through NVML. The part of it that is in use stands here with its own signatures
// and values: building needs no header of NVIDIA's, running no NVML.
#ifndef SPARSEFW_SERVER_METRICS_NVML_H_
#define SPARSEFW_SERVER_METRICS_NVML_H_

#include <vector>

#include "absl/status/statusor.h"
#include "server/metrics/gpu_sample.h"

struct nvmlDevice_st;

namespace sparsefw::server {

using NvmlDevice = nvmlDevice_st*;  // nvmlDevice_t

// nvmlReturn_t. NVML may return values that do not stand here.
using NvmlReturn = int;
inline constexpr NvmlReturn kNvmlSuccess = 0;
inline constexpr NvmlReturn kNvmlInvalidArgument = 2;
inline constexpr NvmlReturn kNvmlNotSupported = 3;
inline constexpr NvmlReturn kNvmlNotFound = 6;
inline constexpr NvmlReturn kNvmlDriverNotLoaded = 9;
inline constexpr NvmlReturn kNvmlGpuIsLost = 15;

inline constexpr int kNvmlTemperatureGpu = 0;  // nvmlTemperatureSensors_t

// nvmlMemory_t, in bytes.
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;  // with what the driver reserves
};

// nvmlUtilization_t, in percent of the device's last sample period.
struct NvmlUtilization {
  unsigned gpu;     // time in which a kernel ran
  unsigned memory;  // time in which device memory was read or written
};

// NVML's functions, each named as there without "nvml". Thread-safe between init
// and shutdown, as NVML says of itself. Any of them may block for as long as the
// driver does.
struct NvmlApi {
  NvmlReturn (*init)() = nullptr;  // nvmlInit_v2
  NvmlReturn (*shutdown)() = nullptr;
  const char* (*error_string)(NvmlReturn) = nullptr;
  // nvmlDeviceGetHandleByPciBusId_v2: "00000000:3B:00.0"
  NvmlReturn (*device_by_pci_bus_id)(const char*, NvmlDevice*) = nullptr;

  // Null where this NVML lacks them.
  NvmlReturn (*memory_info)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlReturn (*utilization_rates)(NvmlDevice, NvmlUtilization*) = nullptr;
  NvmlReturn (*temperature)(NvmlDevice, int sensor, unsigned* celsius) = nullptr;
  NvmlReturn (*power_usage)(NvmlDevice, unsigned* milliwatts) = nullptr;
};

inline constexpr char kNvmlFile[] = "libnvidia-ml.so.1";

// Opens the library, which is never closed again: it may have threads.
// Errors: NotFound       it cannot be loaded; the message says why
//         Unimplemented  it lacks a function that is needed
absl::StatusOr<NvmlApi> LoadNvml(const char* file = kNvmlFile);

// Starts NVML, which ends with the last copy of the sampler, and looks the
// devices up by their PCI bus ids: NVML's numbers are not CUDA's, and
// CUDA_VISIBLE_DEVICES changes only CUDA's. A device that NVML does not know is
// left out of the samples. Not thread-safe; may block as NVML may.
// Errors: FailedPrecondition  NVML does not start, or knows none of the devices
absl::StatusOr<GpuSampler> OpenNvmlSampler(const NvmlApi& nvml,
                                           const std::vector<GpuDevice>& devices);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_NVML_H_
