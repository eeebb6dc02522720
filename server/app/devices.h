// From a device's name to the backend that runs there.
#ifndef SPARSEFW_SERVER_APP_DEVICES_H_
#define SPARSEFW_SERVER_APP_DEVICES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sparsefw/backend.h"

namespace sparsefw::server {

// Decided once, at start-up, and then reported: nothing falls back silently.
struct DefaultDevice {
  const Backend* backend = nullptr;
  DeviceDescription device;
  std::string reason;  // why this one
};

// `flag` as in --device.
// Errors: those of FindBackend.
absl::StatusOr<DefaultDevice> ChooseDefaultDevice(std::string_view flag);

// `name` as in JobSpec.device: "" and "auto" mean the default. Errors: as above.
absl::StatusOr<const Backend*> ResolveDevice(std::string_view name, const Backend& otherwise);

std::vector<DeviceDescription> DescribeDevices();

// Memory of the machine, or of its cgroup, whatever the default device; 0 where
// it does not tell.
int64_t HostMemoryBytes();

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_DEVICES_H_
