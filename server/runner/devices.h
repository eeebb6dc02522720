// The devices that the server may use, and the backend of each.
#ifndef SPARSEFW_SERVER_RUNNER_DEVICES_H_
#define SPARSEFW_SERVER_RUNNER_DEVICES_H_

#include <cstdint>
#include <map>
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
  std::string reason;                         // why this one
  std::map<std::string, int64_t> free_bytes;  // of `usable` with their own memory, by name
  std::vector<UnusableDevice> unusable;       // that it would have taken
};

// `flag` as in --device. Begins the use of the CUDA devices that it means, and of no others: all
// for "auto" and "cuda", those of a list, "cuda:N[,N]", whose first is the default, none for "cpu"
// and "reference". A device that fails is left out unless a list names it.
// Errors: FindBackend's; FailedPrecondition (DEVICE_UNAVAILABLE), a listed device that fails, or
//         all of them for "cuda"; InvalidArgument (OPTION_INVALID), a malformed list or one that
//         names a device twice.
absl::StatusOr<DefaultDevice> ChooseDefaultDevice(std::string_view flag);

// The errors of a list, "cuda:N[,N]", that can be found without looking at the devices.
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
  double memory_share = 0.9;  // of what was free when the device was chosen
  int streams = 4;
};
// The devices of `chosen.usable` that have memory of their own.
std::vector<PoolDevice> PoolDevices(const DefaultDevice& chosen, const PoolOptions& options);

// Bytes of the memory of `chosen.backend` for Gram accumulators: of what jobs leave free, at most
// a ninth of what is theirs. 0 where the device is the host.
int64_t SumMemory(const DefaultDevice& chosen, const PoolOptions& options);

// Memory of the machine, or of its cgroup; 0 where it is unknown.
int64_t HostMemoryBytes();

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RUNNER_DEVICES_H_
