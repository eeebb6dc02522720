// Interface of the server's counters; prometheus_metrics.h implements it.
#ifndef SPARSEFW_SERVER_METRICS_METRICS_H_
#define SPARSEFW_SERVER_METRICS_METRICS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/jobs/devices.h"
#include "server/jobs/job.h"
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

// Thread-safe; every call is quick.
class Metrics {
 public:
  virtual ~Metrics() = default;
  // method: "TensorService/WriteTensor"
  virtual void RpcStarted(std::string_view method) = 0;
  virtual void RpcEnded(std::string_view method, absl::StatusCode code,
                        absl::Duration duration) = 0;
  virtual void BytesReceived(std::string_view method, int64_t bytes) = 0;
  virtual void BytesSent(std::string_view method, int64_t bytes) = 0;
  // A call that ended with an error, the client's giving up excepted.
  virtual void RpcRefused(const absl::Status& error) = 0;
  virtual void ChunkRejected(std::string_view reason) = 0;
  // A connection closed at once: no file descriptors, or beyond the limit of connections.
  virtual void ConnectionRefused() = 0;
  virtual void JobAccepted(const Job& job) = 0;
  // A job of an earlier process, whatever becomes of it.
  virtual void JobRecovered() = 0;
  virtual void JobStarted(const Job& job) = 0;
  virtual void JobEnded(const Job& job) = 0;
  // Called at every scrape; set once, before the first.
  virtual void SetGauges(std::function<Gauges()> compute) = 0;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_METRICS_H_
