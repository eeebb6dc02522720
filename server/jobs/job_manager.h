// Accepts, queues, runs, watches and ends jobs. Proto-free and gRPC-free.
#ifndef SPARSEFW_SERVER_JOBS_JOB_MANAGER_H_
#define SPARSEFW_SERVER_JOBS_JOB_MANAGER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/jobs/clock.h"
#include "server/jobs/device_pool.h"
#include "server/jobs/job.h"
#include "server/jobs/job_store.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw::server {

// Does the work of one job. Implemented over the solver and the tensor store.
class JobRunner {
 public:
  virtual ~JobRunner() = default;

  // What a valid spec refers to, held from acceptance to the end of the job so
  // that its tensors cannot be deleted meanwhile.
  struct Inputs {
    virtual ~Inputs() = default;
    int64_t rows = 0;
    int64_t cols = 0;
    // Host memory that the run will need on top of them, an upper estimate.
    int64_t working_bytes = 0;
    // The devices of the pool that may run it, and bytes of one's memory, an
    // upper estimate. No devices: it runs on the CPU.
    DeviceNeed device_need;
    // Where it runs, set before Run: of device_need.devices, or "". And the Gram
    // there that it shares with other jobs, where device_need names one.
    std::string device;
    std::shared_ptr<SharedGram> shared_gram;
  };
  // Everything that can be known before the run: tensors exist, their values
  // and shapes fit, options are in range, the device exists.
  virtual absl::StatusOr<std::shared_ptr<Inputs>> Prepare(const JobSpec& spec) = 0;

  // The checks of Prepare that need no values. Inputs that the spec names are
  // looked up, the others are taken from `inputs`; what is not known is not
  // checked. Reserves nothing. Returns what a device must have.
  virtual absl::StatusOr<DeviceNeed> Check(const JobSpec& spec, const InputSpecs& inputs) = 0;

  // Called on a worker thread. `report` may be called from that thread only.
  // A result with stop_cause kCancelled or kDeadline carries the best mask so
  // far. absl::Cancelled: stopped before there was a mask. A result that is not
  // all that was asked for says so (JobResult::incomplete). An error with the
  // reason DEVICE_LOST: the device it ran on is of no use any more; Run may then
  // be called once more with the same inputs, for another device.
  virtual absl::StatusOr<JobResult> Run(
      const Job& job, Inputs& inputs, const StopSignal& stop,
      const std::function<void(const ProgressReport&)>& report) = 0;

  // The job is being deleted or has expired: drop its result tensors.
  virtual void Discard(const Job& job) = 0;
};

// What happens to jobs, for metrics and logs. The calls for one job come in
// order and one at a time; called without locks held; must be thread-safe and quick.
class JobListener {
 public:
  virtual ~JobListener() = default;
  virtual void OnAccepted(const Job& job) = 0;
  virtual void OnStarted(const Job& job) = 0;
  virtual void OnEnded(const Job& job) = 0;
  // No job starts on the device any more; `job` was the first that noticed.
  virtual void OnDeviceLost(const std::string& device, const Job& job, const absl::Status& error) {
    static_cast<void>(device);
    static_cast<void>(job);
    static_cast<void>(error);
  }
  // Something failed where nobody waits for an answer: progress that was not
  // stored and so not announced, an end that is kept in memory until it can be
  // stored, an expired job that stays.
  virtual void OnBackgroundError(const Job& job, const absl::Status& error) {
    static_cast<void>(job);
    static_cast<void>(error);
  }
};

struct JobManagerOptions {
  int workers = 1;              // >= 1; jobs that run on the CPU at once
  int max_queued_jobs = 10000;  // >= 1; those being validated count
  // Of all running jobs together. The first job of the queue waits until what
  // it needs is free, and the others behind it: none is overtaken for ever.
  int64_t working_memory_bytes = std::numeric_limits<int64_t>::max();
  // What else runs jobs, each as many at once as it has streams.
  std::vector<PoolDevice> devices = {};
  Clock* clock = nullptr;  // RealClock() when null; must outlive the manager
};

// A watcher. Callbacks come one at a time for one watcher, without locks held,
// from any thread; they must not block (hand the event on).
class JobWatcher {
 public:
  enum class Event { kSnapshot, kStateChange, kProgress };
  virtual ~JobWatcher() = default;
  virtual void OnJob(Event event, const Job& job) = 0;
};

// Thread-safe.
//
// States: kQueued -> kRunning -> kSucceeded | kFailed | kCancelled, and
// kQueued -> kCancelled | kFailed. Every change gives the job a higher
// revision and is stored before any watcher sees it; only an end that the
// store does not take is told all the same, and stored by CollectGarbage later.
// A job whose device is lost is run once more, from its start, on another one
// that may run it, as soon as there is room; it stays kRunning.
// Nothing that a runner throws gets out: it becomes Internal.
class JobManager {
 public:
  static std::unique_ptr<JobManager> Create(JobManagerOptions options, JobStore* store,
                                            JobRunner* runner, JobListener* listener);
  // Ends every job and joins the workers.
  virtual ~JobManager() = default;

  // Errors: what Prepare says; DevicePool::CheckPossible;
  //         InvalidArgument    priority, deadline or result_ttl out of range
  //                            (OPTION_INVALID); REQUEST_ID_REUSED when the id
  //                            was used with another fingerprint
  //         ResourceExhausted  QUEUE_FULL (metadata retry_delay_ms)
  //         Unavailable        DRAINING (metadata retry_delay_ms)
  //         what the store says when the job cannot be stored
  // validate_only: nothing is queued or stored; the job has no name.
  // Takes as long as Prepare; submissions with the same request id wait for
  // each other, so that they make one job.
  virtual absl::StatusOr<Job> Submit(const JobSpec& spec, std::string_view request_id,
                                     std::string_view fingerprint, std::string_view owner,
                                     bool validate_only) = 0;
  // What Submit checks, as far as it is known before the tensors are there
  // (JobRunner::Check). Errors: those of Submit, but for QUEUE_FULL, DRAINING,
  // REQUEST_ID_REUSED and what the store says.
  virtual absl::Status Check(const JobSpec& spec, const InputSpecs& inputs) = 0;
  virtual absl::StatusOr<Job> Get(std::string_view name) = 0;
  virtual absl::StatusOr<JobStore::Page> List(const JobFilter& filter, int page_size,
                                              std::string_view page_token) = 0;
  // Idempotent. Returns the job as it is now; a running one ends soon after.
  virtual absl::StatusOr<Job> Cancel(std::string_view name) = 0;
  // FailedPrecondition (JOB_NOT_FINISHED) before the end.
  virtual absl::Status Delete(std::string_view name) = 0;

  // First calls OnJob(kSnapshot) before returning, then every state change
  // after that snapshot exactly once and in order, and progress. The snapshot
  // is of now, unless the state has changed since `after_revision` (the last
  // revision that the watcher knows; 0: none): then it is of that revision.
  // Returns an id for Unwatch; after Unwatch returns no callback runs or will
  // run. Unwatch must not be called from inside a callback.
  virtual absl::StatusOr<int64_t> Watch(std::string_view name, std::shared_ptr<JobWatcher> watcher,
                                        int64_t after_revision = 0) = 0;
  virtual void Unwatch(int64_t id) = 0;

  // No more jobs are accepted or started; running ones go on for at most
  // `grace` and are then cancelled, keeping their best masks; queued ones are
  // cancelled. Returns when all have ended.
  virtual void Drain(absl::Duration grace) = 0;
  // Only refuses new jobs.
  virtual void StopAccepting() = 0;

  // Drops jobs whose result_ttl is over. To be called now and then.
  virtual void CollectGarbage() = 0;
  virtual int64_t queued() const = 0;
  virtual int64_t running() const = 0;
  // Reserved by jobs that run, of working_memory_bytes.
  virtual int64_t working_bytes() const = 0;
  virtual std::vector<DeviceUsage> devices() const = 0;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_JOB_MANAGER_H_
