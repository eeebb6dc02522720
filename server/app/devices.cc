#include "server/app/devices.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

std::string ReasonOfAuto(const std::string& chosen) {
  std::string missing;
  for (const DeviceProbe& probe : ProbeDevices()) {
    if (probe.available) continue;
    missing +=
        absl::StrFormat("no %s device (%s), ", absl::AsciiStrToUpper(probe.name), probe.reason);
  }
  return missing.empty() ? absl::StrFormat("auto: %s is the first device", chosen)
                         : absl::StrFormat("auto: %sso %s", missing, chosen);
}

std::vector<const Backend*> AllOfThePool() {
  std::vector<const Backend*> pool;
  for (const Backend* backend : Backends()) {
    if (backend->has_device_memory()) pool.push_back(backend);
  }
  return pool;
}

}  // namespace

std::vector<PoolDevice> PoolDevices(const PoolOptions& options) {
  std::vector<PoolDevice> devices;
  for (const Backend* backend : AllOfThePool()) {
    const DeviceDescription device = backend->Describe();
    const double share = options.memory_share * static_cast<double>(device.memory_free_bytes);
    devices.push_back({.name = device.name,
                       .memory_bytes = options.memory_bytes > 0 ? options.memory_bytes
                                                                : static_cast<int64_t>(share),
                       .streams = options.streams});
  }
  return devices;
}

absl::StatusOr<DefaultDevice> ChooseDefaultDevice(std::string_view flag) {
  if (!flag.empty() && flag != "auto") {
    SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, FindBackend(flag));
    return DefaultDevice{backend, flag == "cuda" ? AllOfThePool() : std::vector{backend},
                         backend->Describe(), absl::StrFormat("--device %s", flag)};
  }
  const Backend* backend = Backends().front();
  DeviceDescription device = backend->Describe();
  std::string reason = ReasonOfAuto(device.name);
  return DefaultDevice{backend,
                       backend->has_device_memory() ? AllOfThePool() : std::vector{backend},
                       std::move(device), std::move(reason)};
}

absl::StatusOr<std::vector<const Backend*>> ResolveDevices(
    std::string_view name, const std::vector<const Backend*>& otherwise) {
  if (name.empty() || name == "auto") return otherwise;
  SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, FindBackend(name));
  if (name == "cuda") return AllOfThePool();
  return std::vector{backend};
}

std::vector<DeviceDescription> DescribeDevices() {
  std::vector<DeviceDescription> devices;
  for (const Backend* backend : Backends()) devices.push_back(backend->Describe());
  return devices;
}

int64_t HostMemoryBytes() {
  const absl::StatusOr<const Backend*> cpu = FindBackend("cpu");
  return cpu.ok() ? (*cpu)->Describe().memory_bytes : 0;
}

}  // namespace sparsefw::server
