// The start after an earlier process with the same durable store.
#ifndef SPARSEFW_SERVER_JOBS_LIFECYCLE_RECOVERY_H_
#define SPARSEFW_SERVER_JOBS_LIFECYCLE_RECOVERY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/clock.h"
#include "server/jobs/job_listener.h"
#include "server/jobs/job_runner.h"
#include "server/jobs/job_store.h"
#include "server/jobs/lifecycle/job_table.h"
#include "server/jobs/scheduling/scheduler.h"

namespace sparsefw::server {

// Jobs of an earlier process, by what became of them.
struct RecoveredJobs {
  int64_t queued = 0;
  int64_t interrupted = 0;  // of these: they were running
  int64_t failed = 0;
  int64_t cancelled = 0;
};

// Used by one thread, before jobs are submitted.
class Recovery {
 public:
  // All of them outlive it.
  struct Parts {
    Clock& clock;
    JobStore& store;
    JobRunner& runner;
    JobListener& listener;
    JobTable& table;
    Scheduler& scheduler;
  };
  Recovery(int max_attempts, const Parts& parts) : max_attempts_(max_attempts), parts_(parts) {}

  // As JobManager::Recover.
  absl::StatusOr<RecoveredJobs> Run();

 private:
  absl::StatusOr<std::vector<Job>> LoadOldestFirst() const;
  absl::Status Recover(Job job, RecoveredJobs* recovered);
  // Counts the attempt of a job whose run has ended with its process.
  void CountAttempt(Job& job) const;
  // Why the job cannot go on; OK, with its inputs, when it can.
  absl::StatusOr<std::shared_ptr<JobRunner::Inputs>> Prepare(const Job& job) const;
  // Whether the job is not to run again, whatever it could.
  static bool IsOver(const Job& job);
  absl::Status End(Job job, int64_t revision, JobState state, absl::Status error);

  const int max_attempts_;
  const Parts parts_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_LIFECYCLE_RECOVERY_H_
