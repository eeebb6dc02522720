// The jobs that the manager holds in memory beside the store.
#ifndef SPARSEFW_SERVER_JOBS_LIFECYCLE_JOB_TABLE_H_
#define SPARSEFW_SERVER_JOBS_LIFECYCLE_JOB_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "server/jobs/clock.h"
#include "server/jobs/lifecycle/active_job.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Thread-safe. Its lock is a leaf of the lock order.
//
// Holds exactly the jobs that have not ended, and those whose end the store has
// not taken yet (some of which count as not ended); any other job is in the store in its last
// state.
class JobTable {
 public:
  using JobPtr = std::shared_ptr<ActiveJob>;

  // Submissions in progress; a job is added while its submission is counted.
  void BeginSubmission();
  void EndSubmission();
  int64_t submissions() const {
    MutexLock lock(mutex_);
    return submissions_;
  }

  void Add(const JobPtr& job);
  void Remove(std::string_view name);  // of a job that was not accepted after all
  void CountRunning();
  // The job has ended, from kRunning or from kQueued. Until Announced its
  // watchers have not been told. `stored`: the store has the end.
  void Ended(const JobPtr& job, bool was_running, bool stored);
  void Announced();
  // An end is not stored and not told: the job stays as it was, but no longer runs.
  void KeptBack(const JobPtr& job, bool was_running);
  // A running job is suspended: it stays in the table but counts as idle.
  void Suspended();

  JobPtr Find(std::string_view name) const;  // null: ask the store
  std::vector<JobPtr> NotEnded() const;
  std::vector<JobPtr> Unstored() const;
  void ForgetUnstored(std::string_view name);
  int64_t running() const {
    MutexLock lock(mutex_);
    return running_;
  }

  // No submission in progress, every job ended and its end announced.
  bool Idle() const {
    MutexLock lock(mutex_);
    return submissions_ == 0 && announcing_ == 0 && active_.empty();
  }
  // The same of submissions and running jobs; others may wait.
  bool NothingRuns() const {
    MutexLock lock(mutex_);
    return submissions_ == 0 && announcing_ == 0 && running_ == 0;
  }
  // Grows with every change above. WaitForChange returns when it is not `seen`
  // any more or at `time`.
  int64_t version() const {
    MutexLock lock(mutex_);
    return version_;
  }
  void WaitForChange(int64_t seen, Clock& clock, absl::Time time);

 private:
  using Jobs = std::map<std::string, JobPtr, std::less<>>;
  void Changed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  int64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t submissions_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t announcing_ ABSL_GUARDED_BY(mutex_) = 0;  // ended, not announced yet
  Jobs active_ ABSL_GUARDED_BY(mutex_);
  Jobs unstored_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_LIFECYCLE_JOB_TABLE_H_
