// The past states of a job: what a watcher that reconnects has missed.
#ifndef SPARSEFW_SERVER_JOBS_LIFECYCLE_JOB_HISTORY_H_
#define SPARSEFW_SERVER_JOBS_LIFECYCLE_JOB_HISTORY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/jobs/event_queue.h"
#include "server/jobs/job.h"

namespace sparsefw::server {

// Watchers see progress before it is stored, and a power failure may take back what was. The first
// change of a running job after a restart is newer than the stored revision by this number.
// Watchers never see revisions that are further ahead.
inline constexpr int64_t kMostRevisionsLost = int64_t{1} << 20;

// Gives the job the state and the revision, and appends both to its history.
void ChangeState(Job& job, JobState state, int64_t revision);

// Back in the queue: nothing is left of the run that was interrupted.
void ReturnToQueue(Job& job, int64_t revision);

// The job as it was accepted.
Job AsAccepted(const Job& job);

// The first events of a watcher that has seen `after_revision` (0: nothing).
// Errors: OutOfRange (REVISION_UNKNOWN)  the job has not come to that revision, or
//         the history does not go back to it
// Revisions grow. Where no state change was missed: one snapshot of the job as it
// is now. Otherwise a snapshot of the job as of after_revision, without its
// progress; every missed state change, each once; and the job as it is now.
absl::StatusOr<std::vector<JobEvent>> EventsAfter(const Job& job, int64_t after_revision);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_LIFECYCLE_JOB_HISTORY_H_
