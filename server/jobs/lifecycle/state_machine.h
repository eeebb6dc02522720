// Every change of a job's state: stored, announced, and counted in one place.
#ifndef SPARSEFW_SERVER_JOBS_LIFECYCLE_STATE_MACHINE_H_
#define SPARSEFW_SERVER_JOBS_LIFECYCLE_STATE_MACHINE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/lifecycle/active_job.h"
#include "server/jobs/lifecycle/announcer.h"
#include "server/jobs/lifecycle/guarded_runner.h"

namespace sparsefw::server {

// Thread-safe, without a lock of its own: a transition holds ActiveJob::mutex
// while it changes and stores the job, then tells the listener and hands the event for the
// watchers over to the announcer.
// The transitions of one job follow each other, so their events stay in order.
class StateMachine {
 public:
  using JobPtr = std::shared_ptr<ActiveJob>;
  struct Started {
    std::shared_ptr<const Job> job;
    std::shared_ptr<JobRunner::Inputs> inputs;
  };
  struct Ending {
    JobState state = JobState::kCancelled;
    absl::Status error;  // as Job::error
    std::optional<JobResult> result;
  };

  // `announcer` outlives it.
  StateMachine(const JobParts& parts, Announcer& announcer)
      : parts_(parts), announcer_(announcer) {}

  // Stores a new job, announces and queues it. Errors: the store's; then there is
  // no such job.
  absl::Status Accept(const JobPtr& job, std::string_view request_id, std::string_view fingerprint,
                      const JobRoom& room);
  // kQueued -> kRunning. Nothing when the job has ended, or ends here because its
  // deadline has passed or the store refuses it. A job that a durable store refuses
  // stays as it is, since the disk may have room later: see Enqueue.
  std::optional<Started> Start(const JobPtr& job);
  // Behind the jobs of its priority. Nothing happens when it does not wait.
  void Enqueue(const JobPtr& job);
  // Nothing happens when the job is not in state `from` any more.
  void End(const JobPtr& job, JobState from, Ending ending);
  // Asks a job that runs, or is about to, to stop.
  void Stop(const JobPtr& job, ActiveJob::StopReason why);
  // Tries again to store an end that the store has refused. Errors: the store's.
  absl::Status StoreEnd(const JobPtr& job);
  // A queued job ends here, a running one soon; a durable store knows of either when
  // this returns OK. Errors: the store's; then the job ends all the same, unless the
  // process ends first.
  absl::Status Cancel(const JobPtr& job);

  // Leaves the job to a later process, which finds it in a durable store. A queued job does not
  // start any more; jobs of other states stay as they are. A job that would end with its stream
  // goes on without it: its client is told to come back.
  void Suspend(const JobPtr& job);
  // kRunning -> kQueued of a job that has stopped as kInterrupted: suspends it, and its run does
  // not count as an attempt. False, and nothing has happened, of any other.
  bool Requeue(const JobPtr& job);

  // First the events of EventsAfter, then every event from now on. Errors:
  // EventsAfter's.
  absl::StatusOr<std::shared_ptr<EventQueue>> Watch(ActiveJob& job, int64_t after_revision,
                                                    std::function<void()> wake);

  static Ending DeadlinePassed(const Job& job);

 private:
  // An end on its way from the store to the watchers.
  struct StoredEnd {
    std::shared_ptr<const Job> job;
    absl::Status stored;
    bool announced = false;
    bool kept_back = false;  // ActiveJob::unstored_end
  };
  // The first half of an end of a job in state `from`; Tell is the second.
  StoredEnd Store(const JobPtr& job, JobState from, Ending ending)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job->mutex);
  // Errors: the store's, where the end is kept back.
  absl::Status Tell(const JobPtr& job, const StoredEnd& end);
  // Stores `next`, which is no end and is the job from then on. Errors: the store's; then nothing
  // has happened.
  absl::Status Commit(ActiveJob& job, Job next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job.mutex);
  void Announce(ActiveJob& job);
  void TellEnd(const JobPtr& job, const std::shared_ptr<const Job>& ended, bool announced);
  const JobParts parts_;
  Announcer& announcer_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_LIFECYCLE_STATE_MACHINE_H_
