// What a slow reader still has to be told about a job.
#ifndef SPARSEFW_SERVER_RPC_CALLS_JOB_FEED_H_
#define SPARSEFW_SERVER_RPC_CALLS_JOB_FEED_H_

#include <deque>
#include <functional>
#include <optional>

#include "server/jobs/job_manager.h"
#include "sparsefw/mutex.h"
#include "sparsefw/v1/job.pb.h"

namespace sparsefw::server {

// Thread-safe. Bounded: a job has at most three states, and of its
// progress only the latest is kept; a state change replaces older progress.
class JobFeed : public JobWatcher {
 public:
  // `wake` is called after every event, without locks held; it must not block.
  explicit JobFeed(std::function<void()> wake) : wake_(std::move(wake)) {}

  void OnJob(Event event, const Job& job) override;

  // The next event, if there is one.
  std::optional<v1::JobEvent> Next();
  // The terminal event has been handed out: nothing will follow.
  bool ended() const;
  // As of the newest event, handed out or not.
  Job latest() const;

 private:
  const std::function<void()> wake_;
  mutable Mutex mutex_;
  std::deque<v1::JobEvent> pending_ ABSL_GUARDED_BY(mutex_);
  Job latest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CALLS_JOB_FEED_H_
