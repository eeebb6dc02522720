// The start after an earlier process with the same durable store.
#ifndef SPARSEFW_SERVER_JOBS_LIFECYCLE_RECOVERY_H_
#define SPARSEFW_SERVER_JOBS_LIFECYCLE_RECOVERY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/jobs/lifecycle/guarded_runner.h"
#include "server/jobs/lifecycle/state_machine.h"

namespace sparsefw::server {

// Jobs of an earlier process, by what became of them.
struct RecoveredJobs {
  int64_t queued = 0;
  int64_t interrupted = 0;  // of these: they were running
  int64_t failed = 0;
  int64_t cancelled = 0;
};

// As JobManager::Recover. Called by one thread, before jobs are submitted.
absl::StatusOr<RecoveredJobs> RecoverJobs(const JobParts& parts, StateMachine& states,
                                          int max_attempts);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_LIFECYCLE_RECOVERY_H_
