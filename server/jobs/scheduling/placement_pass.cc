#include "server/jobs/scheduling/placement_pass.h"

namespace sparsefw::server {

std::optional<std::string> PlacementPass::Place(const JobNeed& need) {
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

bool PlacementPass::Full() const {
  if (memory_claimed_) return true;
  return !host_.free_worker && !pool_.HasStream(claimed_);
}

}  // namespace sparsefw::server
