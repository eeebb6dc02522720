// The queued jobs: their order within a tenant, and the order of their deadlines.
#ifndef SPARSEFW_SERVER_JOBS_SCHEDULING_JOB_QUEUE_H_
#define SPARSEFW_SERVER_JOBS_SCHEDULING_JOB_QUEUE_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/jobs/lifecycle/active_job.h"

namespace sparsefw::server {

// Within a tenant higher priority first, then order of arrival; which tenant is next
// is FairShare's affair. Not thread-safe. Push, Remove and TakeExpired cost O(log n) a
// job, positions O(n).
//
// A tenant's jobs that need the same of the server (JobNeed, but for the Gram) form a
// lane: where the first of a lane finds no place, the others find none either, so a
// search looks at no more than the first of every lane.
class JobQueue {
 public:
  using JobPtr = std::shared_ptr<ActiveJob>;

  void Push(JobPtr job);
  // Removes and returns the first job of the tenant for which `take` says kTake; null
  // when there is none. kPass goes on with the first of the next lane, kStop ends the
  // search, as do kMostLooks of them.
  enum class Look { kTake, kPass, kStop };
  static constexpr int kMostLooks = 256;
  JobPtr TakeFirst(std::string_view tenant, const std::function<Look(const ActiveJob&)>& take);
  bool Remove(std::string_view name);  // whether it was there

  // Removes and returns those whose deadline is not after `now`.
  std::vector<JobPtr> TakeExpired(absl::Time now);
  absl::Time next_deadline() const;  // InfiniteFuture when there is none
  std::vector<JobPtr> All() const;   // tenant by tenant

  // Jobs of its tenant ahead of this one; 0 for a job that is not queued.
  int Position(std::string_view name) const;
  // The same for those of these jobs that are queued, by name. One walk over the jobs of their
  // tenants, up to the last.
  std::map<std::string, int, std::less<>> Positions(std::span<const std::string> names) const;
  size_t size() const { return places_.size(); }
  int64_t size_of(std::string_view tenant) const;
  bool empty() const { return places_.empty(); }

 private:
  struct Key {
    int negated_priority;
    int64_t arrival;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  using Jobs = std::map<Key, JobPtr>;
  // Devices, bytes there, bytes of the Gram, bytes of the host, whether alone.
  using LaneNeed = std::tuple<std::vector<std::string>, int64_t, int64_t, int64_t, bool>;
  struct Tenant {
    Jobs jobs;
    std::map<LaneNeed, Jobs> lanes;
    std::map<Key, const Jobs*> heads;  // the first of every lane
  };
  struct Place {
    JobPtr job;
    Key key;
  };
  static LaneNeed LaneOf(const ActiveJob& job);
  JobPtr Take(std::string_view name);

  int64_t arrivals_ = 0;
  std::map<std::string, Tenant, std::less<>> tenants_;      // with jobs
  std::map<std::string, Place, std::less<>> places_;        // by the name of the job
  std::map<std::pair<absl::Time, Key>, JobPtr> deadlines_;  // finite ones
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_SCHEDULING_JOB_QUEUE_H_
