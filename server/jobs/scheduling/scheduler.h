// Decides when and where queued jobs run, and accounts for what they reserve.
#ifndef SPARSEFW_SERVER_JOBS_SCHEDULING_SCHEDULER_H_
#define SPARSEFW_SERVER_JOBS_SCHEDULING_SCHEDULER_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/identity/tenants.h"
#include "server/jobs/clock.h"
#include "server/jobs/devices.h"
#include "server/jobs/job_runner.h"
#include "server/jobs/lifecycle/active_job.h"
#include "server/jobs/scheduling/device_pool.h"
#include "server/jobs/scheduling/fair_share.h"
#include "server/jobs/scheduling/job_queue.h"
#include "server/jobs/scheduling/placement_pass.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

struct SchedulerOptions {
  int workers = 1;  // >= 1; jobs that run on the CPU at once
  // Memory of all running jobs together. The first queued job waits until it fits, and the others
  // behind it for starvation_limit.
  int64_t working_memory_bytes = std::numeric_limits<int64_t>::max();
  // Further devices; each runs as many jobs at once as it has streams.
  std::vector<PoolDevice> devices = {};
  // The limits of tenants; to be followed by OnLimitsChanged when they change.
  LimitsOfTenant limits_of = {};
  // A job that does not fit holds back jobs that do for so long.
  absl::Duration starvation_limit = absl::Seconds(60);
};

// Owns the queue, the device pool and all reservations; knows nothing of states
// or stores. Which job is next: that of the tenant that is furthest behind its fair
// share (FairShare) and may run one more, of its jobs the first (JobQueue) that finds a
// place (PlacementPass). While a job runs that needs to be alone, none is. Thread-safe. Its lock
// comes after ActiveJob::mutex; no other lock is taken under it, and no Gram is freed under it:
// that waits for its device.
class Scheduler {
 public:
  using JobPtr = std::shared_ptr<ActiveJob>;

  // A job taken from the queue and what is reserved for it, until Release.
  struct Lease {
    JobPtr job;  // null: the scheduler has stopped
    Placement placement = {};
    EvictedGrams evicted = {};  // to be freed before the job allocates
  };

  Scheduler(SchedulerOptions options, Clock& clock);

  // Whether a device could run the job, were it idle. Errors: DevicePool's.
  absl::Status CheckPossible(const DeviceNeed& need) const;
  // Errors: CheckPossible's; then the job is not queued.
  absl::Status Enqueue(const JobPtr& job);
  // Nothing happens when it is not queued.
  void Remove(const ActiveJob& job);
  // To be called when a job's stop signal was set: it may wait for another device.
  void OnStopRequested();
  // To be called when limits have changed: more jobs may run.
  void OnLimitsChanged() { OnStopRequested(); }

  // Waits for a job that can start now.
  Lease NextJob();
  void Release(Lease& lease);
  // Frees evicted Grams and returns their bytes. Called before the job runs.
  void FreeEvicted(Lease& lease);
  // Jobs whose deadline passes; waits for one. Those that were queued have left the
  // queue. None: the scheduler has stopped.
  struct Expired {
    std::vector<JobPtr> queued;
    std::vector<JobPtr> leased;  // kDeadlineSlack ago
    bool empty() const { return queued.empty() && leased.empty(); }
  };
  Expired NextExpired();
  // A run ends by itself before its deadline, if what it does next takes no longer
  // than expected. It is stopped once it is so late.
  static constexpr absl::Duration kDeadlineSlack = absl::Milliseconds(200);

  // The queued jobs that no device can run any more, with the error that says so;
  // they stay queued. `newly_lost` is false when the device was lost already.
  std::vector<std::pair<JobPtr, absl::Status>> LoseDevice(const std::string& device,
                                                          bool* newly_lost);
  // Waits until another device has room and reserves it; the job goes before the
  // whole queue. Errors: `lost` when no device can run the job any more; Cancelled
  // and DeadlineExceeded (DEADLINE_EXCEEDED) while it waited.
  absl::Status MoveToAnotherDevice(Lease& lease, const absl::Status& lost);

  void StopStarting();  // no job is taken from the queue any more
  void Stop();          // ends NextJob, NextExpired and AwaitStop
  // Returns after `timeout`, real time, or when the scheduler stops.
  void AwaitStop(absl::Duration timeout);

  std::vector<JobPtr> Queued() const {
    MutexLock lock(mutex_);
    return queue_.All();
  }
  int64_t queued() const {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(queue_.size());
  }
  int64_t queued_of(std::string_view tenant) const {
    MutexLock lock(mutex_);
    return queue_.size_of(tenant);
  }
  TenantCounts tenants() const {
    MutexLock lock(mutex_);
    return share_.tenants();
  }
  // Jobs of its tenant ahead; 0 where it is not queued.
  int Position(std::string_view name) const {
    MutexLock lock(mutex_);
    return queue_.Position(name);
  }
  std::map<std::string, int, std::less<>> Positions(std::span<const std::string> names) const {
    MutexLock lock(mutex_);
    return queue_.Positions(names);
  }
  // Reserved.
  int64_t working_bytes() const {
    MutexLock lock(mutex_);
    return working_bytes_;
  }
  std::vector<DeviceUsage> devices() const {
    MutexLock lock(mutex_);
    return pool_.usage();
  }

 private:
  Lease TakeFromQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next job that `pass` has a place for.
  JobPtr TakePlaced(PlacementPass& pass, std::string* device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReserveDevice(Lease& lease, const std::string& device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Free(EvictedGrams evicted) ABSL_LOCKS_EXCLUDED(mutex_);

  const SchedulerOptions options_;
  Clock& clock_;

  mutable Mutex mutex_;
  CondVar work_;  // NextJob, MoveToAnotherDevice: queue, reservations, limits, moving_, stopping_
  CondVar deadline_;  // NextExpired: the first deadline, stopping_
  CondVar stopped_;   // AwaitStop
  bool starting_ ABSL_GUARDED_BY(mutex_) = true;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  JobQueue queue_ ABSL_GUARDED_BY(mutex_);
  FairShare share_ ABSL_GUARDED_BY(mutex_);
  ClaimTimes claims_ ABSL_GUARDED_BY(mutex_);
  // Finite deadlines of leased jobs, with the slack.
  std::set<std::pair<absl::Time, JobPtr>> lease_deadlines_ ABSL_GUARDED_BY(mutex_);
  int64_t working_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t leases_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t on_cpu_ ABSL_GUARDED_BY(mutex_) = 0;  // of these: without a device
  bool alone_ ABSL_GUARDED_BY(mutex_) = false;  // the one lease is of a job that runs alone
  DevicePool pool_ ABSL_GUARDED_BY(mutex_);
  // Jobs whose device was lost and that wait for another.
  std::vector<const ActiveJob*> moving_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_SCHEDULING_SCHEDULER_H_
