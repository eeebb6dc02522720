// The queue between a job and one of its watchers.
#ifndef SPARSEFW_SERVER_JOBS_EVENT_QUEUE_H_
#define SPARSEFW_SERVER_JOBS_EVENT_QUEUE_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "server/jobs/job.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

struct JobEvent {
  enum class Kind { kSnapshot, kStateChange, kProgress };
  Kind kind = Kind::kSnapshot;
  std::shared_ptr<const Job> job;
  // Progress of a kProgress event: newer than the job, which is as its last other change has left
  // it.
  std::optional<JobProgress> progress = {};

  int64_t revision() const { return progress.has_value() ? progress->revision : job->revision; }
};

// Thread-safe. The job pushes, the watcher pulls.
//
// Bounded: progress that has not been pulled is dropped when a newer event
// arrives. State changes are all kept; a process makes at most three of a job:
// the start, and an end or the return to the queue, which may be cancelled there.
class EventQueue {
 public:
  // `wake` is called after every Push, without locks held, possibly by several
  // threads at once. It must not block. The queue starts with `first`.
  EventQueue(std::vector<JobEvent> first, std::function<void()> wake);

  // Ignores an event that is not newer than the newest: its watcher came after
  // the change and has it already.
  void Push(JobEvent event);

  // The oldest event, if there is one.
  std::optional<JobEvent> Next();
  // The terminal event has been pulled: no more will come.
  bool ended() const;

  // The job stops here and goes on in a later process: after what is in the queue
  // nothing comes. Calls `wake`.
  void Suspend();
  // Suspended, and all events have been pulled.
  bool suspended() const;
  // Suspended before its end, whatever is still to be pulled.
  bool goes_on() const;
  // The job of the newest event, pulled or not.
  std::shared_ptr<const Job> latest() const;

 private:
  void Append(JobEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<void()> wake_;
  mutable Mutex mutex_;
  std::deque<JobEvent> pending_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Job> latest_ ABSL_GUARDED_BY(mutex_);
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;  // of the newest event
  bool suspended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_EVENT_QUEUE_H_
