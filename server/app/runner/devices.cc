#include "server/app/runner/devices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

constexpr std::string_view kCudaPrefix = "cuda:";

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

std::vector<const Backend*> WithDeviceMemory(const std::vector<const Backend*>& backends) {
  std::vector<const Backend*> pool;
  for (const Backend* backend : backends) {
    if (backend->has_device_memory()) pool.push_back(backend);
  }
  return pool;
}

// "cuda:0,2" -> "cuda:0", "cuda:2". Errors: InvalidArgument.
absl::StatusOr<std::vector<std::string>> ExpandList(std::string_view list) {
  const auto invalid = [list](const std::string& rule) {
    return WithReason(absl::InvalidArgumentError(absl::StrFormat("device %s; got %s", rule, list)),
                      "OPTION_INVALID");
  };
  std::vector<std::string> names;
  const std::vector<std::string> entries =
      absl::StrSplit(std::string(list.substr(kCudaPrefix.size())), ',');
  for (const std::string& entry : entries) {
    int number = 0;
    if (entry.empty() || entry.find_first_not_of("0123456789") != std::string::npos ||
        !absl::SimpleAtoi(entry, &number)) {
      return invalid(absl::StrFormat(
          "must be cuda:N[,N], each N the number of a device, which \"%s\" is not", entry));
    }
    std::string name = absl::StrFormat("cuda:%d", number);
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return invalid(absl::StrFormat("must name each device once, and names %s twice", name));
    }
    names.push_back(std::move(name));
  }
  return names;
}

// The listed devices, and the backends without device memory.
absl::StatusOr<DefaultDevice> ChooseListed(std::string_view flag) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<std::string> names, ExpandList(flag));
  DefaultDevice chosen;
  for (const std::string& name : names) {
    SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, FindBackend(name));
    chosen.pool.push_back(backend);
  }
  chosen.usable = chosen.pool;
  for (const Backend* backend : Backends()) {
    if (!backend->has_device_memory()) chosen.usable.push_back(backend);
  }
  chosen.backend = chosen.pool.front();
  chosen.device = chosen.backend->Describe();
  chosen.reason = absl::StrFormat("--device %s", flag);
  return chosen;
}

}  // namespace

std::vector<PoolDevice> PoolDevices(const std::vector<const Backend*>& usable,
                                    const PoolOptions& options) {
  std::vector<PoolDevice> devices;
  for (const Backend* backend : WithDeviceMemory(usable)) {
    const DeviceDescription device = backend->Describe();
    const double share = options.memory_share * static_cast<double>(device.memory_free_bytes);
    devices.push_back({.name = device.name,
                       .memory_bytes = options.memory_bytes > 0 ? options.memory_bytes
                                                                : static_cast<int64_t>(share),
                       .streams = options.streams});
  }
  return devices;
}

absl::Status CheckDeviceList(std::string_view flag) {
  if (flag.starts_with(kCudaPrefix)) return ExpandList(flag).status();
  return absl::OkStatus();
}

absl::StatusOr<DefaultDevice> ChooseDefaultDevice(std::string_view flag) {
  if (flag.starts_with(kCudaPrefix)) return ChooseListed(flag);
  DefaultDevice chosen;
  chosen.usable = {Backends().begin(), Backends().end()};
  const bool automatic = flag.empty() || flag == "auto";
  if (automatic) {
    chosen.backend = Backends().front();
  } else {
    SPARSEFW_ASSIGN_OR_RETURN(chosen.backend, FindBackend(flag));
  }
  chosen.pool = chosen.backend->has_device_memory() ? WithDeviceMemory(chosen.usable)
                                                    : std::vector{chosen.backend};
  chosen.device = chosen.backend->Describe();
  chosen.reason =
      automatic ? ReasonOfAuto(chosen.device.name) : absl::StrFormat("--device %s", flag);
  return chosen;
}

absl::StatusOr<std::vector<const Backend*>> ResolveDevices(
    std::string_view name, const std::vector<const Backend*>& usable,
    const std::vector<const Backend*>& default_pool) {
  if (name.empty() || name == "auto") return default_pool;
  SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, FindBackend(name));
  if (name == backend->name() && backend->has_device_memory()) return WithDeviceMemory(usable);
  if (std::find(usable.begin(), usable.end(), backend) == usable.end()) {
    std::vector<std::string> names;
    for (const Backend* one : usable) names.push_back(one->Describe().name);
    return WithReason(absl::FailedPreconditionError(absl::StrFormat(
                          "device must be one that the server was started with: %s; got %s",
                          absl::StrJoin(names, ", "), name)),
                      "DEVICE_UNAVAILABLE");
  }
  return std::vector{backend};
}

std::vector<DeviceDescription> DescribeDevices(const std::vector<const Backend*>& usable) {
  std::vector<DeviceDescription> devices;
  for (const Backend* backend : usable) devices.push_back(backend->Describe());
  return devices;
}

int64_t HostMemoryBytes() {
  const absl::StatusOr<const Backend*> cpu = FindBackend("cpu");
  return cpu.ok() ? (*cpu)->Describe().memory_bytes : 0;
}

}  // namespace sparsefw::server
