// The job manager as the composition of its parts.
#ifndef SPARSEFW_SERVER_JOBS_JOB_MANAGER_IMPL_H_
#define SPARSEFW_SERVER_JOBS_JOB_MANAGER_IMPL_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "server/jobs/clock.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/lifecycle/announcer.h"
#include "server/jobs/lifecycle/job_table.h"
#include "server/jobs/lifecycle/recovery.h"
#include "server/jobs/lifecycle/state_machine.h"
#include "server/jobs/lifecycle/workers.h"
#include "server/jobs/scheduling/scheduler.h"
#include "server/jobs/submission/submission.h"

namespace sparsefw::server {

// Lock order: ActiveJob::mutex, Submission, Scheduler, JobTable, Announcer; each is private to
// its class. The store is called with at most the ActiveJob's lock held; runner,
// listener and watchers with none.
class JobManagerImpl final : public JobManager {
 public:
  JobManagerImpl(const JobManagerOptions& options, JobStore* store, JobRunner* runner,
                 JobListener* listener);
  ~JobManagerImpl() override;

  absl::StatusOr<RecoveredJobs> Recover() override { return recovery_.Run(); }
  absl::StatusOr<Job> Submit(const JobSpec& spec, std::string_view request_id,
                             std::string_view fingerprint, const Owner& owner,
                             bool validate_only) override;
  absl::StatusOr<Job> Get(std::string_view name) override;
  absl::StatusOr<bool> Has(std::string_view name, std::string_view tenant) override;
  absl::Status Check(const JobSpec& spec, const InputSpecs& inputs) override {
    return submission_.Check(spec, inputs);
  }
  absl::StatusOr<JobStore::Page> List(const JobFilter& filter, int page_size,
                                      std::string_view page_token) override;
  absl::StatusOr<Job> Cancel(std::string_view name) override;
  absl::Status Delete(std::string_view name) override;
  absl::StatusOr<std::shared_ptr<EventQueue>> Watch(std::string_view name, int64_t after_revision,
                                                    std::function<void()> wake) override;
  void Drain(absl::Duration grace) override;
  void StopAccepting() override { submission_.StopAccepting(); }
  void OnLimitsChanged() override { scheduler_.OnLimitsChanged(); }
  void CollectGarbage() override;
  int64_t queued() const override { return scheduler_.queued(); }
  int64_t running() const override { return table_.running(); }
  TenantCounts tenants() const override { return scheduler_.tenants(); }
  int64_t working_bytes() const override { return scheduler_.working_bytes(); }
  std::vector<DeviceUsage> devices() const override { return scheduler_.devices(); }

 private:
  void RetryUnstored();
  absl::Status RemoveEnded(const Job& job);
  bool StopWaiting();
  void StopRunning();

  Clock& clock_;
  JobStore& store_;
  JobRunner& runner_;
  JobListener& listener_;
  JobTable table_;
  Scheduler scheduler_;
  Announcer announcer_;
  StateMachine states_;
  Submission submission_;
  Recovery recovery_;
  Workers workers_;  // last: its threads use the others
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_JOB_MANAGER_IMPL_H_
