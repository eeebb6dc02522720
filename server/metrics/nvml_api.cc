#include "server/metrics/nvml_api.h"

#include <dlfcn.h>

#include "absl/strings/str_format.h"

namespace sparsefw::server {
namespace {

// Whether it is there.
template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

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

}  // namespace sparsefw::server
