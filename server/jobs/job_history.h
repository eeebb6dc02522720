// A job as it was: what a watcher that comes back has to be told.
#ifndef SPARSEFW_SERVER_JOBS_JOB_HISTORY_H_
#define SPARSEFW_SERVER_JOBS_JOB_HISTORY_H_

#include <cstdint>
#include <vector>

#include "server/jobs/job.h"
#include "server/jobs/job_manager.h"

namespace sparsefw::server {

// Appends the state that the job has now to its history.
void RecordState(Job& job);

struct JobVersion {
  JobWatcher::Event event;
  Job job;
};

// What tells a watcher who has seen `after_revision` everything: first a
// snapshot, last the job as it is now, in between every state change with a
// higher revision, each once. Revisions grow. Where no state change was missed,
// and for after_revision 0, that is one snapshot of the job as it is now;
// otherwise the snapshot is the job as of after_revision, without its progress.
std::vector<JobVersion> VersionsAfter(const Job& job, int64_t after_revision);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_JOB_HISTORY_H_
