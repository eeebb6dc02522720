#include "server/jobs/scheduling/job_queue.h"

#include <cassert>
#include <iterator>

namespace sparsefw::server {

JobQueue::LaneNeed JobQueue::LaneOf(const ActiveJob& job) {
  const DeviceNeed& device = job.need.device;
  return {device.devices, device.bytes, device.gram_bytes, job.need.working_bytes, job.need.alone};
}

void JobQueue::Push(JobPtr job) {
  const Key key{-job->priority, ++arrivals_};
  assert(!places_.contains(job->name));
  Tenant& tenant = tenants_[job->tenant];
  Jobs& lane = tenant.lanes[LaneOf(*job)];
  if (lane.empty() || key < lane.begin()->first) {
    if (!lane.empty()) tenant.heads.erase(lane.begin()->first);
    tenant.heads.emplace(key, &lane);
  }
  lane.emplace(key, job);
  tenant.jobs.emplace(key, job);
  if (job->deadline != absl::InfiniteFuture()) {
    deadlines_.emplace(std::pair(job->deadline, key), job);
  }
  places_.emplace(job->name, Place{job, key});
}

JobQueue::JobPtr JobQueue::TakeFirst(std::string_view tenant,
                                     const std::function<Look(const ActiveJob&)>& take) {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return nullptr;
  int looks = 0;
  for (const auto& [key, lane] : found->second.heads) {
    if (++looks > kMostLooks) return nullptr;
    const JobPtr& head = lane->begin()->second;
    const Look look = take(*head);
    if (look == Look::kTake) return Take(head->name);
    if (look == Look::kStop) return nullptr;
  }
  return nullptr;
}

bool JobQueue::Remove(std::string_view name) { return Take(name) != nullptr; }

std::vector<JobQueue::JobPtr> JobQueue::TakeExpired(absl::Time now) {
  std::vector<JobPtr> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first.first <= now) {
    expired.push_back(Take(deadlines_.begin()->second->name));
  }
  return expired;
}

absl::Time JobQueue::next_deadline() const {
  return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first.first;
}

std::vector<JobQueue::JobPtr> JobQueue::All() const {
  std::vector<JobPtr> all;
  all.reserve(places_.size());
  for (const auto& [name, tenant] : tenants_) {
    for (const auto& [key, job] : tenant.jobs) all.push_back(job);
  }
  return all;
}

int JobQueue::Position(std::string_view name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) return 0;
  const Jobs& jobs = tenants_.find(place->second.job->tenant)->second.jobs;
  return static_cast<int>(std::distance(jobs.begin(), jobs.find(place->second.key)));
}

std::map<std::string, int, std::less<>> JobQueue::Positions(
    std::span<const std::string> names) const {
  std::map<const Jobs*, std::map<Key, std::string_view>> wanted;
  for (const std::string& name : names) {
    const auto place = places_.find(name);
    if (place == places_.end()) continue;
    const Jobs& jobs = tenants_.find(place->second.job->tenant)->second.jobs;
    wanted[&jobs].emplace(place->second.key, name);
  }
  std::map<std::string, int, std::less<>> positions;
  for (const auto& [jobs, keys] : wanted) {
    auto next = keys.begin();
    int position = 0;
    for (auto at = jobs->begin(); next != keys.end(); ++at, ++position) {
      if (at->first != next->first) continue;
      positions.emplace(next->second, position);
      ++next;
    }
  }
  return positions;
}

int64_t JobQueue::size_of(std::string_view tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? 0 : static_cast<int64_t>(found->second.jobs.size());
}

// Null where there is no such job.
JobQueue::JobPtr JobQueue::Take(std::string_view name) {
  const auto place = places_.find(name);
  if (place == places_.end()) return nullptr;
  const auto [job, key] = place->second;
  places_.erase(place);
  deadlines_.erase({job->deadline, key});
  const auto tenant = tenants_.find(job->tenant);
  tenant->second.jobs.erase(key);
  const auto lane = tenant->second.lanes.find(LaneOf(*job));
  if (lane->second.begin()->first == key) {
    tenant->second.heads.erase(key);
    if (lane->second.size() > 1) {
      tenant->second.heads.emplace(std::next(lane->second.begin())->first, &lane->second);
    }
  }
  lane->second.erase(key);
  if (lane->second.empty()) tenant->second.lanes.erase(lane);
  if (tenant->second.jobs.empty()) tenants_.erase(tenant);
  return job;
}

}  // namespace sparsefw::server
