// Values that the server computes when somebody scrapes or looks.
#ifndef SPARSEFW_SERVER_METRICS_GAUGES_H_
#define SPARSEFW_SERVER_METRICS_GAUGES_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "prometheus/metric_family.h"
#include "server/jobs/devices.h"
#include "server/metrics/gpu_sample.h"
#include "server/net/connections.h"
#include "server/tensors/tensor_info.h"

namespace sparsefw::server {

// Totals of the jobs still kept.
struct KeptJobs {
  int64_t succeeded = 0;
  int64_t failed = 0;
  int64_t cancelled = 0;
  int64_t damaged = 0;  // their records cannot be read
  int64_t bytes = 0;    // what all count for, of job_budget_bytes
};

// Gauges of the threads for one kind of calls.
struct ExecutorGauges {
  std::string_view name;  // one of a fixed set
  int64_t queued = 0;
  absl::Duration oldest_wait = absl::ZeroDuration();
  int64_t begun = 0;      // since the start, as `withdrawn`
  int64_t withdrawn = 0;  // whose caller gave up first
};

// Values that are computed when scraped, never kept by counting up and down.
struct Gauges {
  int64_t jobs_queued = 0;
  int64_t jobs_running = 0;
  int64_t tenants_waiting = 0;             // with queued jobs
  int64_t tenants_running = 0;             // with running jobs
  std::optional<KeptJobs> jobs_kept = {};  // nothing: the store has not been read yet
  int64_t store_count_failures = 0;        // since the start
  TensorStoreUsage tensors = {};           // the disk's with the database
  int64_t job_budget_bytes = 0;
  int64_t database_bytes = 0;  // of its files; 0: none
  int64_t staging_budget_bytes = 0;
  int64_t staging_used_bytes = 0;
  int64_t solve_memory_budget_bytes = 0;
  int64_t solve_memory_used_bytes = 0;
  int64_t watchers = 0;
  std::vector<ExecutorGauges> executors = {};
  Connections::Counts connections = {};  // to the gRPC port
  bool draining = false;
  int64_t open_descriptors = 0;
  int64_t max_descriptors = 0;
  std::optional<absl::Time> tls_certificate_expiry = {};  // nothing: plain text
  std::vector<DeviceUsage> devices = {};                  // of the pool
  std::vector<GpuSample> gpus = {};                       // as last measured
};

std::vector<prometheus::MetricFamily> FamiliesOf(const Gauges& now);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_GAUGES_H_
