#include "server/jobs/scheduling/device_pool.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

bool Allows(const DeviceNeed& need, const DeviceUsage& usage) {
  return std::find(need.devices.begin(), need.devices.end(), usage.device.name) !=
         need.devices.end();
}

}  // namespace

// Idle Grams count as free: Reserve evicts them.
int64_t DevicePool::Device::FreeBytes() const {
  return usage.device.memory_bytes - usage.reserved_bytes - evicted_bytes;
}

int64_t DevicePool::Device::BytesFor(const DeviceNeed& need) const {
  return grams.InUse(need.gram) ? need.bytes : need.total_bytes();
}

bool DevicePool::Device::HasRoomFor(const DeviceNeed& need) const {
  return !usage.lost && usage.jobs < usage.device.streams && BytesFor(need) <= FreeBytes();
}

DevicePool::DevicePool(const std::vector<PoolDevice>& devices) {
  for (const PoolDevice& device : devices) {
    Device& one = devices_.emplace_back();
    one.usage.device = device;
    one.stats = std::make_shared<GramCacheStats>();
  }
}

absl::Status DevicePool::CheckPossible(const DeviceNeed& need) const {
  if (need.devices.empty()) return absl::OkStatus();
  std::vector<std::string> room;
  for (const Device& device : devices_) {
    const DeviceUsage& usage = device.usage;
    if (usage.lost || !Allows(need, usage)) continue;
    if (need.total_bytes() <= usage.device.memory_bytes) return absl::OkStatus();
    room.push_back(absl::StrFormat("%d on %s", usage.device.memory_bytes, usage.device.name));
  }
  if (room.empty()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "DEVICE_UNAVAILABLE",
                  "device must be one that works; got %s, lost until the server restarts",
                  absl::StrJoin(need.devices, ", "));
  }
  return Refuse(absl::StatusCode::kResourceExhausted, "DEVICE_MEMORY",
                "the job needs about %d bytes of device memory; running jobs may use %s together",
                need.total_bytes(), absl::StrJoin(room, ", "));
}

std::optional<std::string> DevicePool::Choose(const DeviceNeed& need,
                                              const std::set<std::string>& excluded) const {
  const Device* best = nullptr;
  const auto rank = [&need](const Device& device) {
    return std::pair(device.grams.Has(need.gram), device.FreeBytes());
  };
  for (const Device& device : devices_) {
    if (!device.HasRoomFor(need) || !Allows(need, device.usage) ||
        excluded.contains(device.usage.device.name)) {
      continue;
    }
    if (best == nullptr || rank(device) > rank(*best)) best = &device;
  }
  if (best == nullptr) return std::nullopt;
  return best->usage.device.name;
}

void DevicePool::Ref(const DeviceNeed& need) {
  if (!need.gram.empty()) ++refs_[need.gram];
}

void DevicePool::Unref(const DeviceNeed& need, EvictedGrams* evicted) {
  if (need.gram.empty()) return;
  const auto found = refs_.find(need.gram);
  assert(found != refs_.end());
  if (--found->second > 0) return;
  refs_.erase(found);
  for (Device& device : devices_) Unlinked(device, device.grams.Evict(need.gram), evicted);
}

std::shared_ptr<SharedGram> DevicePool::Reserve(const std::string& name, const DeviceNeed& need,
                                                EvictedGrams* evicted) {
  Device& device = Find(name);
  device.usage.reserved_bytes += device.BytesFor(need);
  ++device.usage.jobs;
  std::shared_ptr<SharedGram> gram;
  if (!need.gram.empty()) gram = device.grams.Use(need.gram, need.gram_bytes, device.stats);
  Unlinked(device, device.grams.EvictIdle(device.grams.idle_bytes() - device.FreeBytes()), evicted);
  return gram;
}

void DevicePool::Release(const std::string& name, const DeviceNeed& need, EvictedGrams* evicted) {
  Device& device = Find(name);
  if (!need.gram.empty()) device.grams.Release(need.gram);
  device.usage.reserved_bytes -= device.BytesFor(need);
  --device.usage.jobs;
  if (device.usage.lost) Unlinked(device, device.grams.Evict(need.gram), evicted);
}

void DevicePool::ReleaseBytes(const EvictedGram& freed) {
  assert(freed.gram == nullptr);
  Find(freed.device).evicted_bytes -= freed.bytes;
}

bool DevicePool::MarkLost(const std::string& name, EvictedGrams* evicted) {
  Device& device = Find(name);
  if (device.usage.lost) return false;
  device.usage.lost = true;
  Unlinked(device, device.grams.EvictIdle(device.grams.idle_bytes()), evicted);
  return true;
}

bool DevicePool::HasStream(const std::set<std::string>& excluded) const {
  return std::any_of(devices_.begin(), devices_.end(), [&](const Device& device) {
    const DeviceUsage& usage = device.usage;
    return !usage.lost && usage.jobs < usage.device.streams &&
           !excluded.contains(usage.device.name);
  });
}

std::vector<DeviceUsage> DevicePool::usage() const {
  std::vector<DeviceUsage> all;
  for (const Device& device : devices_) {
    DeviceUsage& usage = all.emplace_back(device.usage);
    usage.gram_bytes = device.grams.bytes() + device.evicted_bytes;
    usage.gram_uploads = device.stats->uploads;
    usage.gram_reuses = device.stats->reuses;
  }
  return all;
}

DevicePool::Device& DevicePool::Find(const std::string& name) {
  const auto found = std::find_if(devices_.begin(), devices_.end(), [&](const Device& device) {
    return device.usage.device.name == name;
  });
  assert(found != devices_.end());
  return *found;
}

void DevicePool::Unlinked(Device& device, std::vector<ResidentGrams::Unlinked> grams,
                          EvictedGrams* evicted) {
  for (ResidentGrams::Unlinked& one : grams) {
    device.evicted_bytes += one.bytes;
    evicted->push_back({device.usage.device.name, one.bytes, std::move(one.gram)});
  }
}

}  // namespace sparsefw::server
