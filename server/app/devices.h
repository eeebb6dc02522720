// From a device's name to the backend that runs there.
#ifndef SPARSEFW_SERVER_APP_DEVICES_H_
#define SPARSEFW_SERVER_APP_DEVICES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/jobs/device_pool.h"
#include "sparsefw/backend.h"

namespace sparsefw::server {

// Decided once, at start-up, and then reported: nothing falls back silently.
struct DefaultDevice {
  const Backend* backend = nullptr;
  std::vector<const Backend*> pool;  // that jobs for the default device may run on
  DeviceDescription device;
  std::string reason;  // why this one
};

// `flag` as in --device.
// Errors: those of FindBackend.
absl::StatusOr<DefaultDevice> ChooseDefaultDevice(std::string_view flag);

// Those that may run a job. `name` as in JobSpec.device: "" and "auto" mean the
// default, "cuda" any CUDA device. Errors: as above.
absl::StatusOr<std::vector<const Backend*>> ResolveDevices(
    std::string_view name, const std::vector<const Backend*>& otherwise);

struct PoolOptions {
  int64_t memory_bytes = 0;   // of each device; 0: the share
  double memory_share = 0.9;  // of what is free now
  int streams = 4;
};
// Every device of the pool, as it is now.
std::vector<PoolDevice> PoolDevices(const PoolOptions& options);

std::vector<DeviceDescription> DescribeDevices();

// Memory of the machine, or of its cgroup, whatever the default device; 0 where
// it does not tell.
int64_t HostMemoryBytes();

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_DEVICES_H_
