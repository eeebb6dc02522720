// Brings the events of one job to one watcher: in order, one at a time.
#ifndef SPARSEFW_SERVER_JOBS_EVENT_CHANNEL_H_
#define SPARSEFW_SERVER_JOBS_EVENT_CHANNEL_H_

#include <deque>
#include <memory>

#include "server/jobs/job.h"
#include "server/jobs/job_manager.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Thread-safe. Events are pushed while the job is locked, which fixes their
// order, and delivered after it is unlocked by whichever thread comes first;
// others find it busy and leave their events to it.
class EventChannel {
 public:
  explicit EventChannel(std::shared_ptr<JobWatcher> watcher);

  // Progress that no callback has begun to deliver gives way to newer
  // progress; everything else is kept.
  void Push(JobWatcher::Event event, std::shared_ptr<const Job> job);

  // The first delivery, by the thread that made the channel; Deliver does
  // nothing before it. So the first event has arrived when Open returns.
  void Open();
  void Deliver();

  // After it no callback runs or will run. Not from inside a callback.
  void Close();

 private:
  struct Pending {
    JobWatcher::Event event;
    std::shared_ptr<const Job> job;
  };
  void DeliverAsOwner();

  std::shared_ptr<JobWatcher> watcher_;  // used by whoever delivers; reset by Close
  Mutex mutex_;
  CondVar idle_;
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mutex_);
  bool delivering_ ABSL_GUARDED_BY(mutex_) = true;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_EVENT_CHANNEL_H_
