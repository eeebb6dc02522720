#include "server/runner/devices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr std::string_view kCudaPrefix = "cuda:";
// For what nobody reserves: cuBLAS, kernels, fragments. A margin, not a measured need.
constexpr int64_t kUnreservedBytes = int64_t{512} << 20;

absl::Status Unavailable(std::string message) {
  return WithReason(absl::FailedPreconditionError(std::move(message)), "DEVICE_UNAVAILABLE");
}

std::string Listed(const std::vector<UnusableDevice>& devices) {
  const auto format = [](std::string* out, const UnusableDevice& device) {
    absl::StrAppend(out, device.name, ": ", device.reason);
  };
  return absl::StrJoin(devices, "; ", format);
}

std::string ReasonOfAuto(const DefaultDevice& chosen) {
  std::string missing;
  for (const DeviceProbe& probe : ProbeDevices()) {
    std::string why = probe.available ? "" : probe.reason;
    if (probe.available && !chosen.backend->has_device_memory()) why = Listed(chosen.unusable);
    if (why.empty()) continue;
    missing += absl::StrFormat("no %s device (%s), ", absl::AsciiStrToUpper(probe.name), why);
  }
  const std::string& name = chosen.device.name;
  return missing.empty() ? absl::StrFormat("auto: %s is the first device", name)
                         : absl::StrFormat("auto: %sso %s", missing, name);
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
    return Invalid("OPTION_INVALID", "device %s; got %s", rule, list);
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

// Begins the use of a device. Errors: what is wrong with it
absl::Status Take(const Backend* backend, DefaultDevice* chosen) {
  if (backend->has_device_memory()) {
    SPARSEFW_ASSIGN_OR_RETURN(const int64_t free, backend->FreeMemoryBytes());
    chosen->free_bytes[backend->Describe().name] = free;
  }
  chosen->usable.push_back(backend);
  return absl::OkStatus();
}

void TakeHost(DefaultDevice* chosen) {
  for (const Backend* backend : Backends()) {
    if (!backend->has_device_memory()) chosen->usable.push_back(backend);
  }
}

absl::Status TakeListed(std::string_view flag, DefaultDevice* chosen) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<std::string> names, ExpandList(flag));
  for (const std::string& name : names) {
    SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, FindBackend(name));
    const absl::Status taken = Take(backend, chosen);
    if (!taken.ok()) {
      return Unavailable(absl::StrFormat("device %s, which --device names, cannot be used: %s",
                                         name, std::string(taken.message())));
    }
  }
  TakeHost(chosen);
  return absl::OkStatus();
}

// All devices but those that fail.
void TakeAll(DefaultDevice* chosen) {
  for (const DeviceProbe& probe : ProbeDevices()) chosen->unusable = probe.unusable;
  for (const Backend* backend : Backends()) {
    const absl::Status taken = Take(backend, chosen);
    if (taken.ok()) continue;
    chosen->unusable.push_back({backend->Describe().name, std::string(taken.message())});
  }
}

int64_t MemoryOfJobs(int64_t free, const PoolOptions& options) {
  if (options.memory_bytes > 0) return options.memory_bytes;
  return static_cast<int64_t>(options.memory_share * static_cast<double>(free));
}

}  // namespace

std::vector<PoolDevice> PoolDevices(const DefaultDevice& chosen, const PoolOptions& options) {
  std::vector<PoolDevice> devices;
  for (const Backend* backend : WithDeviceMemory(chosen.usable)) {
    const std::string name = backend->Describe().name;
    devices.push_back({.name = name,
                       .memory_bytes = MemoryOfJobs(chosen.free_bytes.at(name), options),
                       .streams = options.streams});
  }
  return devices;
}

int64_t SumMemory(const DefaultDevice& chosen, const PoolOptions& options) {
  if (!chosen.backend->has_device_memory()) return 0;
  const int64_t free = chosen.free_bytes.at(chosen.backend->Describe().name);
  const int64_t jobs = MemoryOfJobs(free, options);
  // The share of jobs leaves a ninth of it by default. With a fixed size, others may use the rest.
  return std::clamp<int64_t>(free - jobs - kUnreservedBytes, 0, jobs / 9);
}

absl::Status CheckDeviceList(std::string_view flag) { return ExpandList(flag).status(); }

absl::StatusOr<DefaultDevice> ChooseDefaultDevice(std::string_view flag) {
  DefaultDevice chosen;
  const bool automatic = flag.empty() || flag == "auto";
  if (flag.starts_with(kCudaPrefix)) {
    SPARSEFW_RETURN_IF_ERROR(TakeListed(flag, &chosen));
  } else if (automatic) {
    TakeAll(&chosen);
  } else {
    SPARSEFW_ASSIGN_OR_RETURN(chosen.backend, FindBackend(flag));
    if (!chosen.backend->has_device_memory()) {
      TakeHost(&chosen);
    } else if (TakeAll(&chosen); chosen.free_bytes.empty()) {
      return Unavailable(absl::StrFormat("no device can be used that --device %s means: %s", flag,
                                         Listed(chosen.unusable)));
    }
  }
  if (chosen.backend == nullptr || chosen.backend->has_device_memory()) {
    chosen.backend = chosen.usable.front();
  }
  chosen.pool = chosen.backend->has_device_memory() ? WithDeviceMemory(chosen.usable)
                                                    : std::vector{chosen.backend};
  chosen.device = chosen.backend->Describe();
  chosen.reason = automatic ? ReasonOfAuto(chosen) : absl::StrFormat("--device %s", flag);
  return chosen;
}

absl::StatusOr<std::vector<const Backend*>> ResolveDevices(
    std::string_view name, const std::vector<const Backend*>& usable,
    const std::vector<const Backend*>& default_pool) {
  if (name.empty() || name == "auto") return default_pool;
  SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, FindBackend(name));
  if (name == backend->name() && backend->has_device_memory()) {
    std::vector<const Backend*> any = WithDeviceMemory(usable);
    if (!any.empty()) return any;
  }
  if (std::find(usable.begin(), usable.end(), backend) == usable.end()) {
    std::vector<std::string> names;
    for (const Backend* one : usable) names.push_back(one->Describe().name);
    return Unavailable(
        absl::StrFormat("device must be one that the server was started with: %s; got %s",
                        absl::StrJoin(names, ", "), name));
  }
  return std::vector{backend};
}

int64_t HostMemoryBytes() {
  const absl::StatusOr<const Backend*> cpu = FindBackend("cpu");
  return cpu.ok() ? (*cpu)->Describe().memory_bytes : 0;
}

}  // namespace sparsefw::server
