// Accepts, queues, runs, watches and ends jobs. Uses no proto types and no gRPC.
#ifndef SPARSEFW_SERVER_JOBS_JOB_MANAGER_H_
#define SPARSEFW_SERVER_JOBS_JOB_MANAGER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/identity/owner.h"
#include "server/jobs/clock.h"
#include "server/jobs/devices.h"
#include "server/jobs/event_queue.h"
#include "server/jobs/job.h"
#include "server/jobs/job_listener.h"
#include "server/jobs/job_runner.h"
#include "server/jobs/job_store.h"
#include "server/jobs/lifecycle/announcer.h"
#include "server/jobs/lifecycle/job_table.h"
#include "server/jobs/lifecycle/recovery.h"
#include "server/jobs/lifecycle/state_machine.h"
#include "server/jobs/lifecycle/workers.h"
#include "server/jobs/scheduling/fair_share.h"
#include "server/jobs/scheduling/scheduler.h"
#include "server/jobs/submission/submission.h"

namespace sparsefw::server {

struct JobManagerOptions : SchedulerOptions, SubmissionLimits {
  // >= 1: a job is not run again once that many runs of it in a row have ended with the process
  // and come no further than those before. The last of them runs alone.
  int max_attempts = 3;
  Clock* clock = &RealClock();  // must outlive the manager
};

// Thread-safe.
//
// States: kQueued -> kRunning -> kSucceeded | kFailed | kCancelled, and
// kQueued -> kCancelled | kFailed; with a durable store also kRunning -> kQueued,
// when the process ends first. Every change gives the job a higher
// revision and, but for mere progress, is stored before any watcher sees it. An end that the store
// refuses CollectGarbage stores later: a durable store before anybody is told, so that no job ends
// twice; an end in a store that a restart forgets is announced at once. A job whose device is lost
// is run once more, from its start, on another device that may run it, as soon as there is room; it
// stays kRunning. Exceptions of a runner become Internal.
//
// Lock order: ActiveJob::mutex, Submission, Scheduler, JobTable, Announcer; each is private to
// its class. The store is called with at most the ActiveJob's lock held; runner,
// listener and watchers with none.
class JobManager {
 public:
  // `store`, `runner` and `listener` outlive the manager.
  JobManager(const JobManagerOptions& options, JobStore* store, JobRunner* runner,
             JobListener* listener);
  ~JobManager();  // ends every job and joins the workers

  // To be called once, before anything else. Takes over what the store holds of an earlier process:
  // queued jobs in their old order, whatever max_queued_jobs is, and running ones, which are queued
  // again. Jobs that cannot go on fail: with the error of Prepare (values are not checked again),
  // DEADLINE_EXCEEDED, or Aborted (ATTEMPTS_EXHAUSTED). Jobs that were being cancelled end as
  // cancelled, and so do those that end with a stream (Cancelled, STREAM_LOST). Errors: the
  // store's.
  absl::StatusOr<RecoveredJobs> Recover() { return RecoverJobs(parts_, states_, max_attempts_); }

  // Request ids belong to the owner's tenant.
  // Errors: what Prepare says; Scheduler::CheckPossible;
  //         InvalidArgument    priority, deadline or result_ttl out of range
  //                            (OPTION_INVALID); REQUEST_ID_REUSED when the id
  //                            was used with another digest
  //         PermissionDenied   priority beyond the tenant's (PRIORITY_NOT_ALLOWED)
  //         ResourceExhausted  QUEUE_FULL (metadata retry_delay_ms);
  //                            QUOTA_QUEUED_JOBS of the owner's tenant (likewise,
  //                            unless it may have none; metadata quota, limit, current);
  //                            QUOTA_JOB_BYTES likewise, JOBS_FULL, DISK_BUDGET: no room for
  //                            another job and its end until others are deleted or expire
  //         Unavailable        DRAINING (metadata retry_delay_ms)
  //         what the store says when the job cannot be stored
  // validate_only: nothing is queued or stored; the job has no name.
  // Takes as long as Prepare; submissions with the same request id wait for
  // each other, so that they make one job.
  absl::StatusOr<Job> Submit(const JobSpec& spec, std::string_view request_id,
                             const RequestDigest& digest, const Owner& owner, bool validate_only);
  // Whether a job was made by a request of the tenant with this id. Errors: the store's
  absl::StatusOr<bool> HasRequest(const std::string& tenant, const std::string& id);
  // The checks of Submit, as far as they are possible before the tensors are there
  // (JobRunner::Check). Errors: those of Submit, but for QUEUE_FULL, DRAINING,
  // REQUEST_ID_REUSED and what the store says.
  absl::Status Check(const JobSpec& spec, const InputSpecs& inputs, std::string_view tenant) {
    return submission_.Check(spec, inputs, tenant);
  }
  absl::StatusOr<Job> Get(std::string_view name);
  // Whether the tenant has a job of this name: as JobStore::Has.
  absl::StatusOr<bool> Has(std::string_view name, std::string_view tenant);
  absl::StatusOr<JobStore::Page> List(const JobFilter& filter, int page_size,
                                      std::string_view page_token);
  // Idempotent. Returns the job as it is now; a running one ends soon after.
  absl::StatusOr<Job> Cancel(std::string_view name);
  // FailedPrecondition (JOB_NOT_FINISHED) before the end.
  absl::Status Delete(std::string_view name);

  // The events of a job, to be pulled: a snapshot, then every later state change
  // exactly once and in order, and progress. The snapshot is of now, unless the
  // state has changed since `after_revision` (the last revision that the watcher
  // knows; 0: none): then it is of that revision. `wake` as in EventQueue, on a thread that
  // serves all watchers; it is not called for the first events. The watch ends when the queue
  // is dropped.
  // Errors: NotFound (JOB_NOT_FOUND); those of EventsAfter.
  absl::StatusOr<std::shared_ptr<EventQueue>> Watch(std::string_view name, int64_t after_revision,
                                                    std::function<void()> wake);

  // No more jobs are accepted or started; running ones go on for at most `grace`.
  // With a durable store those that are left then go back to the queue, queued
  // ones stay there for the next process, and their watchers' queues are suspended.
  // Otherwise the running ones are cancelled, keeping their best masks, and queued
  // ones at once. Returns when nothing runs any more.
  void Drain(absl::Duration grace);
  // Only refuses new jobs.
  void StopAccepting() { submission_.StopAccepting(); }
  // Limits of tenants are others now.
  void OnLimitsChanged() { scheduler_.OnLimitsChanged(); }

  // Drops jobs whose result_ttl is over. Called now and then.
  void CollectGarbage();
  int64_t queued() const { return scheduler_.queued(); }
  int64_t running() const { return table_.running(); }
  TenantCounts tenants() const { return scheduler_.tenants(); }
  // Reserved by jobs that run, of working_memory_bytes.
  int64_t working_bytes() const { return scheduler_.working_bytes(); }
  std::vector<DeviceUsage> devices() const { return scheduler_.devices(); }

 private:
  void RetryUnstored();
  absl::Status RemoveEnded(const Job& job);
  bool StopWaiting();
  void StopRunning();

  const int max_attempts_;
  JobTable table_;
  Scheduler scheduler_;
  const JobParts parts_;
  Announcer announcer_;
  StateMachine states_;
  Submission submission_;
  Workers workers_;  // last: its threads use the others
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_JOB_MANAGER_H_
