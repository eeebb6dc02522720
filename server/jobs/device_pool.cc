#include "server/jobs/device_pool.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

bool Allows(const DeviceNeed& need, const DeviceUsage& usage) {
  return std::find(need.devices.begin(), need.devices.end(), usage.device.name) !=
         need.devices.end();
}

int64_t FreeBytes(const DeviceUsage& usage) {
  return usage.device.memory_bytes - usage.reserved_bytes;
}

}  // namespace

DevicePool::DevicePool(const std::vector<PoolDevice>& devices) {
  for (const PoolDevice& device : devices) devices_.push_back({.device = device});
}

absl::Status DevicePool::CheckPossible(const DeviceNeed& need) const {
  if (need.devices.empty()) return absl::OkStatus();
  std::vector<std::string> room;
  for (const DeviceUsage& usage : devices_) {
    if (usage.lost || !Allows(need, usage)) continue;
    if (need.bytes <= usage.device.memory_bytes) return absl::OkStatus();
    room.push_back(absl::StrFormat("%d on %s", usage.device.memory_bytes, usage.device.name));
  }
  if (room.empty()) {
    return WithReason(absl::FailedPreconditionError(absl::StrFormat(
                          "device must be one that works; got %s, lost until the server restarts",
                          absl::StrJoin(need.devices, ", "))),
                      "DEVICE_UNAVAILABLE");
  }
  return WithReason(
      absl::ResourceExhaustedError(absl::StrFormat(
          "the job needs about %d bytes of device memory; running jobs may use %s together",
          need.bytes, absl::StrJoin(room, ", "))),
      "DEVICE_MEMORY");
}

std::optional<std::string> DevicePool::Choose(const DeviceNeed& need,
                                              const std::set<std::string>& excluded) const {
  const DeviceUsage* best = nullptr;
  for (const DeviceUsage& usage : devices_) {
    if (usage.lost || usage.jobs >= usage.device.streams || FreeBytes(usage) < need.bytes ||
        !Allows(need, usage) || excluded.contains(usage.device.name)) {
      continue;
    }
    if (best == nullptr || FreeBytes(usage) > FreeBytes(*best)) best = &usage;
  }
  if (best == nullptr) return std::nullopt;
  return best->device.name;
}

void DevicePool::Reserve(const std::string& device, int64_t bytes) {
  DeviceUsage& usage = Find(device);
  usage.reserved_bytes += bytes;
  ++usage.jobs;
}

void DevicePool::Release(const std::string& device, int64_t bytes) {
  DeviceUsage& usage = Find(device);
  usage.reserved_bytes -= bytes;
  --usage.jobs;
}

bool DevicePool::MarkLost(const std::string& device) {
  DeviceUsage& usage = Find(device);
  if (usage.lost) return false;
  usage.lost = true;
  return true;
}

DeviceUsage& DevicePool::Find(const std::string& name) {
  const auto found = std::find_if(devices_.begin(), devices_.end(), [&](const DeviceUsage& usage) {
    return usage.device.name == name;
  });
  assert(found != devices_.end());
  return *found;
}

std::optional<std::string> Placement::Place(const JobNeed& need) {
  if (memory_claimed_) return std::nullopt;
  std::optional<std::string> place;
  if (!need.device.devices.empty()) {
    place = pool_.Choose(need.device, claimed_);
    if (!place) Claim(need.device);
  } else if (host_.free_worker) {
    place = "";
  }
  if (!place || host_.idle || need.working_bytes <= host_.free_bytes) return place;
  memory_claimed_ = true;
  return std::nullopt;
}

bool Placement::Full() const {
  if (memory_claimed_) return true;
  const auto taken = [this](const DeviceUsage& usage) {
    return usage.lost || usage.jobs >= usage.device.streams || claimed_.contains(usage.device.name);
  };
  const std::vector<DeviceUsage>& devices = pool_.usage();
  return !host_.free_worker && std::all_of(devices.begin(), devices.end(), taken);
}

}  // namespace sparsefw::server
