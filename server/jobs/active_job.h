// A job between acceptance and its end, as the job manager holds it.
#ifndef SPARSEFW_SERVER_JOBS_ACTIVE_JOB_H_
#define SPARSEFW_SERVER_JOBS_ACTIVE_JOB_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/jobs/device_pool.h"
#include "server/jobs/event_channel.h"
#include "server/jobs/job.h"
#include "server/jobs/job_manager.h"
#include "sparsefw/mutex.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw::server {

// `mutex` is held over a change of the job, its storing, and the pushing of
// its event, so these come in one order for everybody. It is taken before the
// manager's own mutex, and never while a watcher is called.
class ActiveJob {
 public:
  ActiveJob(std::shared_ptr<const Job> first, std::shared_ptr<JobRunner::Inputs> its_inputs,
            std::shared_ptr<EventChannel> listener_channel)
      : name(first->name),
        deadline(first->spec.options.deadline),
        need{its_inputs->working_bytes, its_inputs->device_need},
        listener(std::move(listener_channel)),
        job(std::move(first)),
        inputs(std::move(its_inputs)) {}

  const std::string name;
  const absl::Time deadline;
  const JobNeed need;
  const std::shared_ptr<EventChannel> listener;
  StopSignal stop;

  Mutex mutex;
  std::shared_ptr<const Job> job ABSL_GUARDED_BY(mutex);             // replaced by every change
  std::shared_ptr<JobRunner::Inputs> inputs ABSL_GUARDED_BY(mutex);  // until it starts or ends
  std::vector<std::shared_ptr<EventChannel>> watchers ABSL_GUARDED_BY(mutex);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_ACTIVE_JOB_H_
