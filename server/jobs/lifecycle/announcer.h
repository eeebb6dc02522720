// Tells watchers of what happens to jobs and keeps their progress, on a thread of its own.
#ifndef SPARSEFW_SERVER_JOBS_LIFECYCLE_ANNOUNCER_H_
#define SPARSEFW_SERVER_JOBS_LIFECYCLE_ANNOUNCER_H_

#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "server/jobs/lifecycle/active_job.h"
#include "server/jobs/lifecycle/guarded_runner.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// A job's thread hands a report or an event over and goes on: no watcher is called there, nothing
// converted or written. Thread-safe; its lock comes after every other one.
//
// Events come in the order in which they were handed over. Where reports follow
// each other quickly, watchers and listener get the newest, kPause later at most; the store gets
// one every kStorePeriod, and the last one with the end of the run.
class Announcer {
 public:
  using JobPtr = std::shared_ptr<ActiveJob>;
  static constexpr std::chrono::milliseconds kPause{10};
  static constexpr absl::Duration kStorePeriod = absl::Seconds(1);

  explicit Announcer(const JobParts& parts);
  ~Announcer();  // what was handed over is delivered
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;

  void Report(const JobPtr& job, const ProgressReport& report);
  // After an end JobTable::Announced.
  void Tell(const JobPtr& job, JobEvent event);
  // The watchers' queues are suspended.
  void Suspend(const JobPtr& job);
  // Returns once all events that were handed over before have been delivered.
  void Flush();

 private:
  struct Notice {
    JobPtr job;
    JobEvent event;  // without a job: a suspension
  };
  struct Work {
    std::deque<Notice> notices;
    std::vector<JobPtr> reported;
  };

  void Post(Notice notice);
  void Run();
  // False: it has stopped, and there is no more.
  bool Await(Work* work);
  void Deliver(const Notice& notice);
  void AnnounceProgress(ActiveJob& job);

  const JobParts parts_;
  Mutex mutex_;
  CondVar wake_;       // the thread: work, stopping_
  CondVar delivered_;  // Flush: done_
  std::deque<Notice> notices_ ABSL_GUARDED_BY(mutex_);
  std::vector<JobPtr> reported_ ABSL_GUARDED_BY(mutex_);  // with a report that was not there before
  int64_t posted_ ABSL_GUARDED_BY(mutex_) = 0;            // notices
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;              // of these
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point next_round_;  // of reports; only the thread uses it
  std::thread thread_;                                // last: it uses the others
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_LIFECYCLE_ANNOUNCER_H_
