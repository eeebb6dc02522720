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
}

void SetJobGauges(const JobManager& jobs, JobCounts& counts, Gauges& gauges) {
  gauges.jobs_queued = jobs.queued();
  gauges.jobs_running = jobs.running();
  const TenantCounts tenants = jobs.tenants();
  gauges.tenants_waiting = tenants.waiting;
  gauges.tenants_running = tenants.running;
  gauges.jobs_ended = counts.Ended();
  gauges.store_count_failures = counts.failures();
  gauges.solve_memory_used_bytes = jobs.working_bytes();
  gauges.devices = jobs.devices();
}

}  // namespace sparsefw::server
