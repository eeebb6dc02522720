// The past states of a job: what a watcher that reconnects has missed.
#ifndef SPARSEFW_SERVER_JOBS_LIFECYCLE_JOB_HISTORY_H_
#define SPARSEFW_SERVER_JOBS_LIFECYCLE_JOB_HISTORY_H_

#include <cstdint>
#include <vector>

#include "server/jobs/event_queue.h"
#include "server/jobs/job.h"

namespace sparsefw::server {

// Appends the current state of the job to its history.
void RecordState(Job& job);

// The job as it was accepted.
Job AsAccepted(const Job& job);

// The first events of a watcher that has seen `after_revision` (0: nothing).
// Revisions grow. Where no state change was missed: one snapshot of the job as it
// is now. Otherwise a snapshot of the job as of after_revision, without its
// progress; every missed state change, each once; and the job as it is now.
std::vector<JobEvent> EventsAfter(const Job& job, int64_t after_revision);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_LIFECYCLE_JOB_HISTORY_H_
