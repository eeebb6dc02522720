// The one table that knows the backends.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/src/backends/cuda_module.h"
#include "core/src/cpu/runtime/cpu_engine.h"
#include "core/src/reference/reference_engine.h"
#include "sparsefw/backend.h"
#include "sparsefw/reason.h"

namespace sparsefw {
namespace {

struct Registry {
  std::vector<const Backend*> backends;
  std::vector<std::string> devices;  // their names, in the same order
  DeviceProbe cuda;
};

Registry MakeRegistry() {
  Registry registry;
  CudaDevices cuda = FindCudaDevices();
  for (const CudaDevice& device : cuda.devices) {
    registry.backends.push_back(device.backend);
    registry.devices.push_back(device.name);
  }
  registry.cuda = {"cuda", !cuda.devices.empty(), std::move(cuda.reason), std::move(cuda.unusable)};
  for (const Backend* backend : {&CpuBackend(), &ReferenceBackend()}) {
    registry.backends.push_back(backend);
    registry.devices.emplace_back(backend->name());
  }
  return registry;
}

// Never destroyed: threads may still ask while the program ends.
const Registry& TheRegistry() {
  static const Registry* const registry = new Registry(MakeRegistry());
  return *registry;
}

}  // namespace

std::span<const Backend* const> Backends() { return TheRegistry().backends; }

absl::StatusOr<const Backend*> FindBackend(std::string_view name) {
  const Registry& registry = TheRegistry();
  std::string known;
  for (size_t i = 0; i < registry.backends.size(); ++i) {
    if (registry.backends[i]->name() == name || registry.devices[i] == name) {
      return registry.backends[i];
    }
    known += absl::StrFormat("%s%s", known.empty() ? "" : ", ", registry.devices[i]);
  }
  std::string message = absl::StrFormat("device must be one of %s; got %s", known, name);
  if (!registry.cuda.available && name.substr(0, name.find(':')) == registry.cuda.name) {
    message += absl::StrFormat(", and there is no CUDA device: %s", registry.cuda.reason);
  }
  for (const UnusableDevice& device : registry.cuda.unusable) {
    if (device.name == name)
      message += absl::StrFormat(", which cannot be used: %s", device.reason);
  }
  return WithReason(absl::FailedPreconditionError(message), "DEVICE_UNAVAILABLE");
}

std::vector<DeviceProbe> ProbeDevices() { return {TheRegistry().cuda}; }

}  // namespace sparsefw
