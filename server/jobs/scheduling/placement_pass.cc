#include "server/jobs/scheduling/placement_pass.h"

#include <algorithm>

namespace sparsefw::server {

void PlacementPass::Claim(const DeviceNeed& need) {
  for (const std::string& device : need.devices) {
    if (!lapsed_.contains(device)) claimed_.insert(device);
  }
}

// Chooses without regard to claims.
std::optional<std::string> PlacementPass::Choose(const JobNeed& need) const {
  if (!need.device.devices.empty()) return pool_.Choose(need.device);
  return host_.free_worker ? std::optional<std::string>("") : std::nullopt;
}

std::optional<std::string> PlacementPass::Place(const JobNeed& need) {
  if (memory_claimed_) {
    if (Choose(need).has_value() && Fits(need)) held_back_.emplace(kHostMemory);
    return std::nullopt;
  }
  std::optional<std::string> place;
  if (!need.device.devices.empty()) {
    place = pool_.Choose(need.device, claimed_);
    if (!place) {
      if (const auto without = pool_.Choose(need.device); without && Fits(need)) {
        held_back_.insert(*without);
      }
      Claim(need.device);
    }
  } else if (host_.free_worker) {
    place = "";
  }
  if (!place || Fits(need)) return place;
  if (!lapsed_.contains(kHostMemory)) memory_claimed_ = true;
  return std::nullopt;
}

// Further looks may still find that a claim holds a job back.
bool PlacementPass::Full() const {
  if (!host_.free_worker && !pool_.HasStream({})) return true;
  if (memory_claimed_) return held_back_.contains(std::string(kHostMemory));
  return !host_.free_worker && !pool_.HasStream(claimed_) && held_back_.size() >= claimed_.size();
}

std::set<std::string, std::less<>> ClaimTimes::Lapsed(absl::Time now) const {
  std::set<std::string, std::less<>> lapsed;
  for (const auto& [name, since] : since_) {
    if (now >= since + limit_ && now < since + 2 * limit_) lapsed.insert(name);
  }
  return lapsed;
}

void ClaimTimes::Update(const std::set<std::string>& held_back, bool complete, absl::Time now) {
  updated_ = now;
  std::erase_if(since_, [&](const auto& entry) {
    const auto& [name, since] = entry;
    if (now >= since + 2 * limit_) return true;
    return complete && now < since + limit_ && !held_back.contains(name);
  });
  for (const std::string& name : held_back) since_.try_emplace(name, now);
}

absl::Time ClaimTimes::next() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [name, since] : since_) {
    if (since + limit_ > updated_) next = std::min(next, since + limit_);
  }
  return next;
}

}  // namespace sparsefw::server
