#include "server/metrics/nvml.h"

#include <dlfcn.h>

#include <memory>
#include <string>

#include "absl/strings/str_format.h"

namespace sparsefw::server {
namespace {

// Whether it is there.
template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

constexpr double kPercent = 100;
constexpr double kMilliwattsPerWatt = 1000;

absl::Status Error(const NvmlApi& nvml, const std::string& what, NvmlReturn code) {
  const char* const text = nvml.error_string(code);
  return absl::FailedPreconditionError(
      absl::StrFormat("%s: %s (NVML error %d)", what, text == nullptr ? "unknown" : text, code));
}

class NvmlSampler {
 public:
  // NVML has been started.
  explicit NvmlSampler(const NvmlApi& nvml) : nvml_(nvml) {}
  ~NvmlSampler() { nvml_.shutdown(); }
  NvmlSampler(const NvmlSampler&) = delete;
  NvmlSampler& operator=(const NvmlSampler&) = delete;

  absl::Status Find(const std::vector<GpuDevice>& devices) {
    absl::Status first_error;
    for (const GpuDevice& device : devices) {
      NvmlDevice handle = nullptr;
      const NvmlReturn code = nvml_.device_by_pci_bus_id(device.pci_bus_id.c_str(), &handle);
      if (code == kNvmlSuccess) {
        devices_.push_back({device.name, handle});
        continue;
      }
      first_error.Update(Error(
          nvml_, absl::StrFormat("NVML does not know %s at %s", device.name, device.pci_bus_id),
          code));
    }
    return devices_.empty() ? first_error : absl::OkStatus();
  }

  std::vector<GpuSample> Sample() const {
    std::vector<GpuSample> samples;
    samples.reserve(devices_.size());
    for (const Known& device : devices_) samples.push_back(Measure(device));
    return samples;
  }

 private:
  struct Known {
    std::string name;
    NvmlDevice handle;
  };

  // An error of one call says nothing of the others: a device without a power
  // sensor still has memory.
  GpuSample Measure(const Known& device) const {
    GpuSample sample;
    sample.device = device.name;
    NvmlMemory memory = {};
    if (nvml_.memory_info != nullptr && nvml_.memory_info(device.handle, &memory) == kNvmlSuccess) {
      sample.memory = {.used_bytes = static_cast<int64_t>(memory.used),
                       .total_bytes = static_cast<int64_t>(memory.total)};
    }
    NvmlUtilization rates = {};
    if (nvml_.utilization_rates != nullptr &&
        nvml_.utilization_rates(device.handle, &rates) == kNvmlSuccess) {
      sample.utilization = rates.gpu / kPercent;
      sample.memory_utilization = rates.memory / kPercent;
    }
    unsigned celsius = 0;
    if (nvml_.temperature != nullptr &&
        nvml_.temperature(device.handle, kNvmlTemperatureGpu, &celsius) == kNvmlSuccess) {
      sample.temperature_celsius = celsius;
    }
    unsigned milliwatts = 0;
    if (nvml_.power_usage != nullptr &&
        nvml_.power_usage(device.handle, &milliwatts) == kNvmlSuccess) {
      sample.power_watts = milliwatts / kMilliwattsPerWatt;
    }
    return sample;
  }

  const NvmlApi nvml_;
  std::vector<Known> devices_;
};

}  // namespace

absl::StatusOr<NvmlApi> LoadNvml(const char* file) {
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return absl::NotFoundError(
        absl::StrFormat("cannot load NVML: %s", why == nullptr ? file : why));
  }
  NvmlApi api;
  const char* missing = nullptr;
  const auto need = [library, &missing](const char* name, auto* function) {
    if (!Find(library, name, function)) missing = name;
  };
  need("nvmlInit_v2", &api.init);
  need("nvmlShutdown", &api.shutdown);
  need("nvmlErrorString", &api.error_string);
  need("nvmlDeviceGetHandleByPciBusId_v2", &api.device_by_pci_bus_id);
  if (missing != nullptr) {
    return absl::UnimplementedError(absl::StrFormat("NVML (%s) lacks %s", file, missing));
  }
  Find(library, "nvmlDeviceGetMemoryInfo", &api.memory_info);
  Find(library, "nvmlDeviceGetUtilizationRates", &api.utilization_rates);
  Find(library, "nvmlDeviceGetTemperature", &api.temperature);
  Find(library, "nvmlDeviceGetPowerUsage", &api.power_usage);
  return api;
}

absl::StatusOr<GpuSampler> OpenNvmlSampler(const NvmlApi& nvml,
                                           const std::vector<GpuDevice>& devices) {
  if (const NvmlReturn code = nvml.init(); code != kNvmlSuccess) {
    return Error(nvml, "NVML does not start", code);
  }
  const auto sampler = std::make_shared<NvmlSampler>(nvml);
  if (const absl::Status found = sampler->Find(devices); !found.ok()) return found;
  return GpuSampler([sampler] { return sampler->Sample(); });
}

}  // namespace sparsefw::server
