// From a device's name to the backend that runs there.
#ifndef SPARSEFW_SERVER_APP_DEVICES_H_
#define SPARSEFW_SERVER_APP_DEVICES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sparsefw/backend.h"

namespace sparsefw::server {

// Decided once, at start-up, and then reported: nothing falls back silently.
struct DefaultDevice {
  const Backend* backend = nullptr;
  std::string reason;  // why this one
};

// `flag` as in --device.
// Errors: FailedPrecondition (DEVICE_UNAVAILABLE), naming the devices there are.
absl::StatusOr<DefaultDevice> ChooseDefaultDevice(std::string_view flag);

// `name` as in JobSpec.device: "" and "auto" mean the default. Errors: as above.
absl::StatusOr<const Backend*> ResolveDevice(std::string_view name, const Backend& otherwise);

std::vector<DeviceDescription> DescribeDevices();

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_DEVICES_H_
