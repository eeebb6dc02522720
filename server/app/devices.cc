#include "server/app/devices.h"

#include "absl/strings/str_format.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

std::string DeviceNames() {
  std::string names;
  for (const Backend* backend : Backends()) {
    if (!names.empty()) names += ", ";
    names += backend->name();
  }
  return names;
}

absl::StatusOr<const Backend*> Find(std::string_view name) {
  // "cuda:1" is a device of the backend "cuda".
  const absl::StatusOr<const Backend*> backend = FindBackend(name.substr(0, name.find(':')));
  const bool whole_backend = name.find(':') == std::string_view::npos;
  if (backend.ok() && (whole_backend || (*backend)->Describe().name == name)) return backend;
  const std::string message =
      absl::StrFormat("device must be one that this server has (%s); got %s", DeviceNames(), name);
  // Known to the contract, and to no backend yet.
  if (!backend.ok() && name.starts_with("cuda")) {
    return WithReason(
        absl::UnimplementedError(message + ", and this version has no engine for CUDA devices"),
        "DEVICE_UNAVAILABLE");
  }
  return WithReason(absl::FailedPreconditionError(message), "DEVICE_UNAVAILABLE");
}

}  // namespace

absl::StatusOr<DefaultDevice> ChooseDefaultDevice(std::string_view flag) {
  if (flag.empty() || flag == "auto") {
    const Backend* backend = Backends().front();
    return DefaultDevice{
        backend, absl::StrFormat("auto: the first of the devices there are (%s)", DeviceNames())};
  }
  SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, Find(flag));
  return DefaultDevice{backend, absl::StrFormat("--device %s", flag)};
}

absl::StatusOr<const Backend*> ResolveDevice(std::string_view name, const Backend& otherwise) {
  if (name.empty() || name == "auto") return &otherwise;
  return Find(name);
}

std::vector<DeviceDescription> DescribeDevices() {
  std::vector<DeviceDescription> devices;
  for (const Backend* backend : Backends()) devices.push_back(backend->Describe());
  return devices;
}

}  // namespace sparsefw::server
