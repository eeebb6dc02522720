#include "server/app/observe/job_counts.h"

#include "sparsefw/status_macros.h"
#include "sparsefw/steady_time.h"

namespace sparsefw::server {
namespace {

constexpr absl::Duration kCountsPeriod = absl::Minutes(1);

}  // namespace

absl::StatusOr<KeptJobs> JobCounts::Count() const {
  SPARSEFW_ASSIGN_OR_RETURN(auto counts, store_.CountByState());
  SPARSEFW_ASSIGN_OR_RETURN(const JobStoreUsage usage, store_.Usage());
  return KeptJobs{counts[JobState::kSucceeded], counts[JobState::kFailed],
                  counts[JobState::kCancelled], usage.damaged, usage.bytes};
}

std::optional<KeptJobs> JobCounts::Kept() {
  const absl::StatusOr<KeptJobs> counts = Count();
  const absl::Time now = SteadyNow();
  std::optional<KeptJobs> last;
  {
    MutexLock lock(mutex_);
    if (counts.ok()) {
      last_ = *counts;
      return last_;
    }
    ++failures_;
    if (now < next_log_) return last_;
    next_log_ = now + kCountsPeriod;
    last = last_;
  }
  logger_.Log(LogLevel::kWarning, "jobs_not_counted", {{"error", counts.status().ToString()}});
  return last;
}

void JobCounts::SetGauges(const JobManager& jobs, Gauges& gauges) {
  gauges.jobs_queued = jobs.queued();
  gauges.jobs_running = jobs.running();
  const TenantCounts tenants = jobs.tenants();
  gauges.tenants_waiting = tenants.waiting;
  gauges.tenants_running = tenants.running;
  gauges.jobs_kept = Kept();
  gauges.store_count_failures = failures();
  gauges.solve_memory_used_bytes = jobs.working_bytes();
  gauges.devices = jobs.devices();
}

int64_t JobCounts::failures() const {
  MutexLock lock(mutex_);
  return failures_;
}

}  // namespace sparsefw::server
