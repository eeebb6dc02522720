// A job between acceptance and its end.
#ifndef SPARSEFW_SERVER_JOBS_LIFECYCLE_ACTIVE_JOB_H_
#define SPARSEFW_SERVER_JOBS_LIFECYCLE_ACTIVE_JOB_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/jobs/devices.h"
#include "server/jobs/event_queue.h"
#include "server/jobs/job.h"
#include "server/jobs/job_runner.h"
#include "sparsefw/mutex.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw::server {

// `mutex` is held while the job changes and is stored. It comes first in the lock
// order of JobManager and is never held while a listener, a runner or a watcher is
// called.
class ActiveJob {
 public:
  ActiveJob(std::shared_ptr<const Job> first, std::shared_ptr<JobRunner::Inputs> its_inputs)
      : name(first->name),
        tenant(first->owner.tenant),
        priority(first->spec.priority),
        deadline(first->deadline),
        need{its_inputs->working_bytes, its_inputs->device_need},
        cost(its_inputs->cost),
        job(std::move(first)),
        inputs(std::move(its_inputs)) {}

  std::shared_ptr<const Job> Current() ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(mutex);
    return job;
  }

  const std::string name;
  const std::string tenant;
  const int priority;
  const absl::Time deadline;
  const JobNeed need;
  const double cost;  // JobRunner::Inputs::cost
  StopSignal stop;

  Mutex mutex;
  std::shared_ptr<const Job> job ABSL_GUARDED_BY(mutex);             // replaced by every change
  std::shared_ptr<JobRunner::Inputs> inputs ABSL_GUARDED_BY(mutex);  // until it starts or ends
  // An end that a durable store has not taken yet. Nobody is told of it before: the
  // job would end a second time if the process ended first.
  std::shared_ptr<const Job> unstored_end ABSL_GUARDED_BY(mutex);
  // The listener has been told of the acceptance. Until then the submission
  // tells it of an end, too.
  bool announced ABSL_GUARDED_BY(mutex) = false;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;    // by a caller; it may still run
  bool interrupted ABSL_GUARDED_BY(mutex) = false;  // asked to stop and to go on later
  bool overdue ABSL_GUARDED_BY(mutex) = false;      // asked to stop: its deadline has passed
  // Stays in the store for a later process and does not start in this one.
  bool suspended ABSL_GUARDED_BY(mutex) = false;
  // A watch ends when its owner drops the queue.
  std::vector<std::weak_ptr<EventQueue>> watchers ABSL_GUARDED_BY(mutex);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_LIFECYCLE_ACTIVE_JOB_H_
