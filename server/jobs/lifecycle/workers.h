// The threads of the job manager.
#ifndef SPARSEFW_SERVER_JOBS_LIFECYCLE_WORKERS_H_
#define SPARSEFW_SERVER_JOBS_LIFECYCLE_WORKERS_H_

#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/lifecycle/state_machine.h"

namespace sparsefw::server {

// Workers run jobs one at a time each, as many at once as the scheduler leases; one
// more thread waits for deadlines: it ends queued jobs whose deadline passes even while
// every worker is busy, and stops running ones that have not stopped by themselves.
//
// With a store that syncs the disk there are more workers than leases: a job gives its
// lease back before its end is stored, so that the next one runs meanwhile and ends
// share a sync.
class Workers {
 public:
  // All of them outlive it. `count` >= 1: jobs at once.
  Workers(int count, const JobParts& parts, StateMachine& states, Announcer& announcer);
  ~Workers();  // stops the scheduler and joins the threads

 private:
  using Lease = Scheduler::Lease;

  void WorkerLoop();
  void DeadlineLoop();
  void RunJob(Lease& lease);  // releases it
  // Runs it once more on another device when its own is lost.
  absl::StatusOr<JobResult> RunPlaced(Lease& lease, const Job& job, JobRunner::Inputs& inputs);
  // Ends queued jobs that no device can run any more.
  void LoseDevice(const std::string& device, const Job& job, const absl::Status& error);

  const JobParts parts_;
  const bool durable_;
  StateMachine& states_;
  Announcer& announcer_;
  std::vector<std::thread> threads_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_LIFECYCLE_WORKERS_H_
