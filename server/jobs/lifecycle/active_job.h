// A job between acceptance and its end.
#ifndef SPARSEFW_SERVER_JOBS_LIFECYCLE_ACTIVE_JOB_H_
#define SPARSEFW_SERVER_JOBS_LIFECYCLE_ACTIVE_JOB_H_

#include <algorithm>
#include <memory>
#include <optional>
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
  // Why a job is asked to stop. The highest counts: a drain takes nothing back that a caller or the
  // deadline has decided.
  enum class StopReason {
    kNone,
    kInterrupted,  // to go on in a later process
    kOverdue,      // its deadline has passed
    kCancelled,    // by a caller
  };

  // `its_deadline` is in steady time.
  ActiveJob(std::shared_ptr<const Job> first, std::shared_ptr<JobRunner::Inputs> its_inputs,
            absl::Time its_deadline)
      : name(first->name),
        tenant(first->owner.tenant),
        priority(first->spec.priority),
        deadline(its_deadline),
        need(its_inputs->need),
        cost(its_inputs->cost),
        job(std::move(first)),
        stored_revision(job->revision),
        inputs(std::move(its_inputs)) {}

  // The job without the progress of its run.
  std::shared_ptr<const Job> Current() ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(mutex);
    return job;
  }
  // A copy with the progress.
  Job Read() ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(mutex);
    return Now();
  }
  Job Now() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Into a job that was read from the store: it may be newer.
  void ReadProgress(Job* read) ABSL_LOCKS_EXCLUDED(mutex);
  StopReason WhyStopped() ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(mutex);
    return stop_reason;
  }
  // The job may still run; whoever waits for its stop signal is to be woken.
  void AskToStop(StopReason why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    stop_reason = std::max(stop_reason, why);
    stop.Request();
  }
  // Whether it is still to be started.
  bool Waits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return job->state == JobState::kQueued && !suspended && unstored_end == nullptr;
  }
  int64_t revision() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return progress.has_value() ? progress->revision : job->revision;
  }
  // `next` has its progress in it.
  void Replace(std::shared_ptr<const Job> next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // The report that waits becomes the job's progress; the event that says so. None where no
  // report waits or the job does not run any more.
  std::optional<JobEvent> TakeReport() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const std::string name;
  const std::string tenant;
  const int priority;
  const absl::Time deadline;  // in steady time
  const JobNeed need;
  const double cost;  // JobRunner::Inputs::cost
  StopSignal stop;

  Mutex mutex;
  // Replaced by every change but mere progress.
  std::shared_ptr<const Job> job ABSL_GUARDED_BY(mutex);
  std::optional<JobProgress> progress ABSL_GUARDED_BY(mutex);  // newer than `job`
  int64_t stored_revision ABSL_GUARDED_BY(mutex);              // the store knows of it
  absl::Time progress_stored ABSL_GUARDED_BY(mutex) = absl::InfinitePast();
  std::shared_ptr<JobRunner::Inputs> inputs ABSL_GUARDED_BY(mutex);  // until it starts or ends
  // An end that a durable store has not taken yet. Nobody is told of it before: the
  // job would end a second time if the process ended first.
  std::shared_ptr<const Job> unstored_end ABSL_GUARDED_BY(mutex);
  // The listener has been told of the acceptance. Before that the submission tells it of an end as
  // well.
  bool announced ABSL_GUARDED_BY(mutex) = false;
  StopReason stop_reason ABSL_GUARDED_BY(mutex) = StopReason::kNone;
  // Stays in the store for a later process and does not start in this one.
  bool suspended ABSL_GUARDED_BY(mutex) = false;
  // The newest report that nobody has taken yet. Its lock is held for a copy only, for the
  // solver's thread takes it; it comes after `mutex`.
  Mutex report_mutex;
  std::optional<ProgressReport> report ABSL_GUARDED_BY(report_mutex);
  // A watch ends when its owner drops the queue.
  std::vector<std::weak_ptr<EventQueue>> watchers ABSL_GUARDED_BY(mutex);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_LIFECYCLE_ACTIVE_JOB_H_
