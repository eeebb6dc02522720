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

}  // namespace

absl::StatusOr<DefaultDevice> ChooseDefaultDevice(std::string_view flag) {
  if (!flag.empty() && flag != "auto") {
    SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, FindBackend(flag));
    return DefaultDevice{backend, backend->Describe(), absl::StrFormat("--device %s", flag)};
  }
  const Backend* backend = Backends().front();
  DeviceDescription device = backend->Describe();
  std::string reason = ReasonOfAuto(device.name);
  return DefaultDevice{backend, std::move(device), std::move(reason)};
}

absl::StatusOr<const Backend*> ResolveDevice(std::string_view name, const Backend& otherwise) {
  if (name.empty() || name == "auto") return &otherwise;
  return FindBackend(name);
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
