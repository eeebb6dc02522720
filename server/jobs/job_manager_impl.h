// The job manager over threads: `workers` that run jobs and one that ends
// queued jobs whose deadline has passed.
#ifndef SPARSEFW_SERVER_JOBS_JOB_MANAGER_IMPL_H_
#define SPARSEFW_SERVER_JOBS_JOB_MANAGER_IMPL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/jobs/active_job.h"
#include "server/jobs/clock.h"
#include "server/jobs/event_channel.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_queue.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Locks: ActiveJob::mutex, then mutex_. The store is called with at most the
// lock of the job in question held; runner, listener and watchers with none. Nor
// is a Gram let go of under mutex_: that waits for its device.
//
// Invariants: active_ holds exactly the jobs that have not ended, so what is
// not there is in the store in its last state; the exception is unstored_, the
// ends that the store would not take.
class JobManagerImpl final : public JobManager {
 public:
  JobManagerImpl(const JobManagerOptions& options, JobStore* store, JobRunner* runner,
                 JobListener* listener);
  ~JobManagerImpl() override;

  absl::StatusOr<Job> Submit(const JobSpec& spec, std::string_view request_id,
                             std::string_view fingerprint, std::string_view owner,
                             bool validate_only) override;
  absl::StatusOr<Job> Get(std::string_view name) override;
  absl::Status Check(const JobSpec& spec, const InputSpecs& inputs) override;
  absl::StatusOr<JobStore::Page> List(const JobFilter& filter, int page_size,
                                      std::string_view page_token) override;
  absl::StatusOr<Job> Cancel(std::string_view name) override;
  absl::Status Delete(std::string_view name) override;
  absl::StatusOr<int64_t> Watch(std::string_view name, std::shared_ptr<JobWatcher> watcher,
                                int64_t after_revision) override;
  void Unwatch(int64_t id) override;
  void Drain(absl::Duration grace) override;
  void StopAccepting() override;
  void CollectGarbage() override;
  int64_t queued() const override;
  int64_t running() const override;
  int64_t working_bytes() const override;
  std::vector<DeviceUsage> devices() const override;

 private:
  using ActiveJobPtr = std::shared_ptr<ActiveJob>;
  struct Started {
    std::shared_ptr<const Job> job;
    std::shared_ptr<JobRunner::Inputs> inputs;
  };
  // A job that was taken from the queue, and where it runs.
  struct Placed {
    ActiveJobPtr active;                    // null: stop
    std::string device = {};                // "": on the CPU
    std::shared_ptr<SharedGram> gram = {};  // there; may be null
    EvictedGrams evicted = {};              // whose room it takes
  };
  struct Ending {
    JobState state = JobState::kCancelled;
    absl::Status error;  // not OK exactly for kFailed
    std::optional<JobResult> result;
  };
  struct Subscription {
    std::shared_ptr<EventChannel> channel;
    ActiveJobPtr active;  // null when the job had ended
  };

  // Submission: job_manager_submit.cc.
  absl::StatusOr<std::optional<Job>> FindEarlier(std::string_view request_id,
                                                 std::string_view fingerprint);
  void ClaimRequest(const std::string& request_id);
  void ReleaseRequest(const std::string& request_id);
  absl::Status ReserveSlot();
  void ReleaseSlot();
  absl::StatusOr<std::shared_ptr<JobRunner::Inputs>> Prepare(const JobSpec& spec);
  absl::StatusOr<Job> Accept(Job job, std::shared_ptr<JobRunner::Inputs> inputs,
                             std::string_view request_id, std::string_view fingerprint);
  void Enqueue(const ActiveJobPtr& active);
  std::string NewName() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Threads and changes of state: job_manager_run.cc.
  void WorkerLoop();
  void DeadlineLoop();
  void RunJob(Placed& placed);
  // Nothing when the job has ended, or ends here.
  std::optional<Started> Start(const ActiveJobPtr& active);
  absl::StatusOr<JobResult> CallRunner(const Job& job, ActiveJob& active,
                                       JobRunner::Inputs& inputs);
  void Report(ActiveJob& active, const ProgressReport& report);
  // Nothing happens when the job is not in state `from` any more.
  void End(const ActiveJobPtr& active, JobState from, Ending ending);
  static Ending EndingOf(absl::StatusOr<JobResult> outcome);
  static Ending DeadlinePassed(const Job& job);
  // Stores `next` with a new revision and makes it the job. When that fails
  // nothing has changed, unless `next` has ended.
  absl::Status Commit(ActiveJob& active, Job next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(active.mutex);
  static void Push(ActiveJob& active, JobWatcher::Event event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(active.mutex);
  static void Deliver(ActiveJob& active);
  void CancelActive(const ActiveJobPtr& active);

  // Places for jobs: job_manager_devices.cc.
  // What it needs is reserved: Release when it has run.
  Placed NextJob();
  Placed TakeFromQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Reserve(Placed& placed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReserveDevice(Placed& placed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(Placed& placed);
  // Frees their memory and then their room. No locks held.
  void Free(EvictedGrams evicted);
  absl::Status CheckPossible(const DeviceNeed& need) const;
  // Ends queued jobs that no device can run any more.
  void LoseDevice(const std::string& device, const Job& job, const absl::Status& error);
  // Waits until another device has room. Otherwise `lost`, or why it waits no longer.
  absl::Status MoveToAnotherDevice(Placed& placed, const absl::Status& lost);
  absl::StatusOr<JobResult> RunPlaced(Placed& placed, const Job& job, JobRunner::Inputs& inputs);

  ActiveJobPtr FindActive(std::string_view name) const;
  Job WithPosition(Job job) const;
  void RetryUnstored();
  absl::Status RemoveEnded(const Job& job);
  void Discard(const Job& job);

  const JobManagerOptions options_;
  Clock& clock_;
  JobStore& store_;
  JobRunner& runner_;
  JobListener& listener_;
  const std::shared_ptr<JobWatcher> listener_adapter_;

  mutable Mutex mutex_;
  CondVar work_;      // for workers: the queue, what is reserved, moving_, or stopping_
  CondVar deadline_;  // for the deadline thread: the first deadline, or stopping_
  CondVar claims_;    // for submissions: claimed_requests_
  CondVar progress_;  // for Drain: slots_, queue_, active_, ending_
  bool accepting_ ABSL_GUARDED_BY(mutex_) = true;
  bool starting_ ABSL_GUARDED_BY(mutex_) = true;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  JobQueue queue_ ABSL_GUARDED_BY(mutex_);
  int64_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t working_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the jobs taken by workers
  int64_t on_cpu_ ABSL_GUARDED_BY(mutex_) = 0;         // of them, those that run on the CPU
  DevicePool pool_ ABSL_GUARDED_BY(mutex_);
  // Jobs whose device was lost and that wait for another, which they get first.
  std::vector<const ActiveJob*> moving_ ABSL_GUARDED_BY(mutex_);
  int64_t slots_ ABSL_GUARDED_BY(mutex_) = 0;   // submissions on their way into the queue
  int64_t ending_ ABSL_GUARDED_BY(mutex_) = 0;  // ended, watchers not told yet
  std::map<std::string, ActiveJobPtr, std::less<>> active_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, ActiveJobPtr, std::less<>> unstored_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> claimed_requests_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, Subscription> subscriptions_ ABSL_GUARDED_BY(mutex_);
  int64_t last_subscription_ ABSL_GUARDED_BY(mutex_) = 0;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);

  std::vector<std::thread> threads_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_JOB_MANAGER_IMPL_H_
