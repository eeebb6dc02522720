#include "server/jobs/scheduling/job_queue.h"

#include <cassert>
#include <iterator>

namespace sparsefw::server {

void JobQueue::Push(std::shared_ptr<ActiveJob> job) {
  const Key key{-job->priority, ++arrivals_};
  assert(!keys_.contains(job->name));
  keys_.emplace(job->name, key);
  if (job->deadline != absl::InfiniteFuture()) deadlines_.emplace(job->deadline, key);
  items_.emplace(key, std::move(job));
}

std::shared_ptr<ActiveJob> JobQueue::TakeFirst(const std::function<Look(const ActiveJob&)>& take) {
  for (auto item = items_.begin(); item != items_.end(); ++item) {
    const Look look = take(*item->second);
    if (look == Look::kTake) return Take(item);
    if (look == Look::kStop) break;
  }
  return nullptr;
}

bool JobQueue::Remove(std::string_view name) {
  const auto key = keys_.find(name);
  if (key == keys_.end()) return false;
  Take(items_.find(key->second));
  return true;
}

std::vector<std::shared_ptr<ActiveJob>> JobQueue::TakeExpired(absl::Time now) {
  std::vector<std::shared_ptr<ActiveJob>> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    expired.push_back(Take(items_.find(deadlines_.begin()->second)));
  }
  return expired;
}

absl::Time JobQueue::next_deadline() const {
  return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
}

std::vector<std::shared_ptr<ActiveJob>> JobQueue::All() const {
  std::vector<std::shared_ptr<ActiveJob>> jobs;
  jobs.reserve(items_.size());
  for (const auto& [key, job] : items_) jobs.push_back(job);
  return jobs;
}

int JobQueue::Position(std::string_view name) const {
  const auto key = keys_.find(name);
  if (key == keys_.end()) return 0;
  return static_cast<int>(std::distance(items_.begin(), items_.find(key->second)));
}

std::map<std::string, int, std::less<>> JobQueue::Positions() const {
  std::map<std::string, int, std::less<>> positions;
  int position = 0;
  for (const auto& [key, job] : items_) positions.emplace(job->name, position++);
  return positions;
}

std::shared_ptr<ActiveJob> JobQueue::Take(Items::iterator item) {
  std::shared_ptr<ActiveJob> job = std::move(item->second);
  deadlines_.erase({job->deadline, item->first});
  keys_.erase(job->name);
  items_.erase(item);
  return job;
}

}  // namespace sparsefw::server
