// The order in which queued jobs run, and the order of their deadlines.
#ifndef SPARSEFW_SERVER_JOBS_SCHEDULING_JOB_QUEUE_H_
#define SPARSEFW_SERVER_JOBS_SCHEDULING_JOB_QUEUE_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/jobs/lifecycle/active_job.h"

namespace sparsefw::server {

// Higher priority first, then order of arrival. Not thread-safe. Push, Remove
// and TakeExpired cost O(log n) a job, positions O(n).
class JobQueue {
 public:
  void Push(std::shared_ptr<ActiveJob> job);
  // Removes and returns the first job for which `take` says kTake; null when there
  // is none. kStop ends the search.
  enum class Look { kTake, kPass, kStop };
  std::shared_ptr<ActiveJob> TakeFirst(const std::function<Look(const ActiveJob&)>& take);
  bool Remove(std::string_view name);  // whether it was there

  // Removes and returns those whose deadline is not after `now`.
  std::vector<std::shared_ptr<ActiveJob>> TakeExpired(absl::Time now);
  absl::Time next_deadline() const;  // InfiniteFuture when there is none
  std::vector<std::shared_ptr<ActiveJob>> All() const;

  // Jobs ahead of this one; 0 for a job that is not queued.
  int Position(std::string_view name) const;
  std::map<std::string, int, std::less<>> Positions() const;
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }

 private:
  struct Key {
    int negated_priority;
    int64_t arrival;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  using Items = std::map<Key, std::shared_ptr<ActiveJob>>;
  std::shared_ptr<ActiveJob> Take(Items::iterator item);

  int64_t arrivals_ = 0;
  Items items_;
  std::map<std::string, Key, std::less<>> keys_;
  std::set<std::pair<absl::Time, Key>> deadlines_;  // finite ones
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_SCHEDULING_JOB_QUEUE_H_
