// One measurement of a GPU.
#ifndef SPARSEFW_SERVER_METRICS_GPU_SAMPLE_H_
#define SPARSEFW_SERVER_METRICS_GPU_SAMPLE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace sparsefw::server {

struct GpuDevice {
  std::string name;        // "cuda:0"
  std::string pci_bus_id;  // "00000000:3B:00.0"
};

// Readings of the whole card, for all of its users. A reading that the device does not give is
// absent.
struct GpuSample {
  struct Memory {
    int64_t used_bytes = 0;
    int64_t total_bytes = 0;
  };
  std::string device;  // GpuDevice::name
  std::optional<Memory> memory = {};
  std::optional<double> utilization = {};         // [0, 1], time in which a kernel ran
  std::optional<double> memory_utilization = {};  // [0, 1], time in which memory was accessed
  std::optional<double> temperature_celsius = {};
  std::optional<double> power_watts = {};
};

// Measures all devices now; may block.
using GpuSampler = std::function<std::vector<GpuSample>()>;

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_GPU_SAMPLE_H_
