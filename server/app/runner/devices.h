// The devices that the server may use, and the backend of each.
#ifndef SPARSEFW_SERVER_APP_RUNNER_DEVICES_H_
#define SPARSEFW_SERVER_APP_RUNNER_DEVICES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/devices.h"
#include "sparsefw/backend.h"

namespace sparsefw::server {

// Decided once, at start-up, and then reported: nothing falls back silently.
struct DefaultDevice {
  const Backend* backend = nullptr;
  std::vector<const Backend*> pool;    // that jobs for the default device may run on
  std::vector<const Backend*> usable;  // that jobs may ask for, in order of preference
  DeviceDescription device;
  std::string reason;  // why this one
};

// `flag` as in --device. A list, "cuda:N[,N]", restricts the server to these CUDA
// devices; its first is the default.
// Errors: FindBackend's; InvalidArgument (OPTION_INVALID), a malformed list or one
//         that names a device twice.
absl::StatusOr<DefaultDevice> ChooseDefaultDevice(std::string_view flag);

// The errors of a list that can be found without looking at the devices.
absl::Status CheckDeviceList(std::string_view flag);

// The backends that may run a job. `name` as in JobSpec.device: "" and "auto" mean
// the default, "cuda" any usable CUDA device.
// Errors: FindBackend's; FailedPrecondition (DEVICE_UNAVAILABLE), a device that the
//         server was told not to use.
absl::StatusOr<std::vector<const Backend*>> ResolveDevices(
    std::string_view name, const std::vector<const Backend*>& usable,
    const std::vector<const Backend*>& default_pool);

struct PoolOptions {
  int64_t memory_bytes = 0;   // of each device; 0: the share
  double memory_share = 0.9;  // of what is free now
  int streams = 4;
};
// Those of `usable` with memory of their own, as they are now.
std::vector<PoolDevice> PoolDevices(const std::vector<const Backend*>& usable,
                                    const PoolOptions& options);

std::vector<DeviceDescription> DescribeDevices(const std::vector<const Backend*>& usable);

// Memory of the machine, or of its cgroup; 0 where it is unknown.
int64_t HostMemoryBytes();

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_RUNNER_DEVICES_H_
