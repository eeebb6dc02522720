#include "server/app/observe/gauges.h"

namespace sparsefw::server {

void SetTensorGauges(const TensorStoreUsage& usage, Gauges& gauges) {
  gauges.memory_budget_bytes = usage.budget_bytes;
  gauges.memory_used_bytes = usage.used_bytes;
  gauges.disk_budget_bytes = usage.disk_budget_bytes;
  gauges.disk_used_bytes = usage.disk_used_bytes;
  gauges.tensors_corrupt = usage.corrupt;
  gauges.tensors_unchecked = usage.unchecked;
  gauges.tensors = usage.tensors;
  gauges.uploads = usage.uploads;
  gauges.max_tensors = usage.max_tensors;
  gauges.tensors_reserved = usage.reserved;
}

void SetJobGauges(const JobManager& jobs, JobCounts& counts, Gauges& gauges) {
  gauges.jobs_queued = jobs.queued();
  gauges.jobs_running = jobs.running();
  const TenantCounts tenants = jobs.tenants();
  gauges.tenants_waiting = tenants.waiting;
  gauges.tenants_running = tenants.running;
  gauges.jobs_kept = counts.Kept();
  gauges.store_count_failures = counts.failures();
  gauges.solve_memory_used_bytes = jobs.working_bytes();
  gauges.devices = jobs.devices();
}

ExecutorGauges ExecutorGaugesOf(std::string_view name, const Executor::Usage& usage) {
  return {.name = name,
          .queued = usage.queued,
          .oldest_wait = absl::FromChrono(usage.oldest_wait),
          .begun = usage.begun,
          .withdrawn = usage.withdrawn};
}

}  // namespace sparsefw::server
