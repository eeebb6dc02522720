// The metrics of jobs, with those that the store keeps of each state.
#ifndef SPARSEFW_SERVER_APP_OBSERVE_JOB_COUNTS_H_
#define SPARSEFW_SERVER_APP_OBSERVE_JOB_COUNTS_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/app/observe/logging.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_store.h"
#include "server/metrics/gauges.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Thread-safe. Store and logger outlive it.
class JobCounts {
 public:
  JobCounts(const JobStore* store, Logger* logger) : store_(*store), logger_(*logger) {}

  // The counts of the store now; while it cannot be read, what it said last, which is nothing at
  // first. That is logged at most once a minute and counted.
  std::optional<KeptJobs> Kept();
  int64_t failures() const;
  void SetGauges(const JobManager& jobs, Gauges& gauges);

 private:
  absl::StatusOr<KeptJobs> Count() const;

  const JobStore& store_;
  Logger& logger_;
  mutable Mutex mutex_;
  std::optional<KeptJobs> last_ ABSL_GUARDED_BY(mutex_);
  int64_t failures_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time next_log_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_OBSERVE_JOB_COUNTS_H_
