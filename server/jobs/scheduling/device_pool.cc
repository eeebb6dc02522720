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
  return std::ranges::find(need.devices, usage.device.name) != need.devices.end();
}

}  // namespace

// Idle Grams count as free: Reserve evicts them.
int64_t DevicePool::Device::FreeBytes() const {
  return usage.device.memory_bytes - usage.reserved_bytes - evicted_bytes;
}

int64_t DevicePool::Device::BytesFor(const DeviceNeed& need) const {
  const auto found = grams.find(need.gram);
  const bool in_use = found != grams.end() && found->second.users > 0;
  return in_use ? need.bytes : need.total_bytes();
}

bool DevicePool::Device::HasRoomFor(const DeviceNeed& need) const {
  return !usage.lost && usage.jobs < usage.device.streams && BytesFor(need) <= FreeBytes();
}

int64_t DevicePool::Device::IdleBytes() const {
  int64_t bytes = 0;
  for (const auto& [name, gram] : grams) bytes += gram.users == 0 ? gram.bytes : 0;
  return bytes;
}

void DevicePool::Device::Evict(const std::string& gram, EvictedGrams* evicted) {
  const auto found = grams.find(gram);
  if (found == grams.end() || found->second.users > 0) return;
  const int64_t bytes = found->second.bytes;
  evicted_bytes += bytes;
  evicted->push_back({usage.device.name, bytes, std::move(found->second.gram)});
  grams.erase(found);
}

void DevicePool::Device::EvictIdle(int64_t bytes, EvictedGrams* evicted) {
  while (bytes > 0) {
    auto oldest = grams.end();
    for (auto gram = grams.begin(); gram != grams.end(); ++gram) {
      if (gram->second.users > 0) continue;
      if (oldest == grams.end() || gram->second.idle_since < oldest->second.idle_since) {
        oldest = gram;
      }
    }
    if (oldest == grams.end()) return;
    bytes -= oldest->second.bytes;
    Evict(std::string(oldest->first), evicted);
  }
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
    return std::pair(device.grams.contains(need.gram), device.FreeBytes());
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
  for (Device& device : devices_) device.Evict(need.gram, evicted);
}

std::shared_ptr<SharedGram> DevicePool::Reserve(const std::string& name, const DeviceNeed& need,
                                                EvictedGrams* evicted) {
  Device& device = Find(name);
  device.usage.reserved_bytes += device.BytesFor(need);
  ++device.usage.jobs;
  std::shared_ptr<SharedGram> shared;
  if (!need.gram.empty()) {
    const auto [found, is_new] = device.grams.try_emplace(need.gram);
    ResidentGram& gram = found->second;
    if (is_new) {
      gram.bytes = need.gram_bytes;
      gram.gram = std::make_shared<SharedGram>(device.stats);
    }
    ++gram.users;
    shared = gram.gram;
  }
  device.EvictIdle(device.IdleBytes() - device.FreeBytes(), evicted);
  return shared;
}

void DevicePool::Release(const std::string& name, const DeviceNeed& need, EvictedGrams* evicted) {
  Device& device = Find(name);
  if (!need.gram.empty()) {
    const auto found = device.grams.find(need.gram);
    assert(found != device.grams.end() && found->second.users > 0);
    if (--found->second.users == 0) found->second.idle_since = ++device.idle_count;
  }
  device.usage.reserved_bytes -= device.BytesFor(need);
  --device.usage.jobs;
  if (device.usage.lost) device.Evict(need.gram, evicted);
}

void DevicePool::ReleaseBytes(const EvictedGram& freed) {
  assert(freed.gram == nullptr);
  Find(freed.device).evicted_bytes -= freed.bytes;
}

bool DevicePool::MarkLost(const std::string& name, EvictedGrams* evicted) {
  Device& device = Find(name);
  if (device.usage.lost) return false;
  device.usage.lost = true;
  device.EvictIdle(device.IdleBytes(), evicted);
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
    usage.gram_bytes = device.evicted_bytes;
    for (const auto& [name, gram] : device.grams) usage.gram_bytes += gram.bytes;
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

}  // namespace sparsefw::server
