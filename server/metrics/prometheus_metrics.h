// Metrics in Prometheus' form. All names begin with sparsefw_; base units.
//
//   rpc_started_total{method}                counter    calls begun
//   rpc_in_flight{method}                    gauge      calls begun and not ended
//   rpc_duration_seconds{method,code}        histogram  of calls ended; its _count counts them
//   executor_queue_length{executor}          gauge      work of calls that waits for a thread
//   executor_oldest_wait_seconds{executor}   gauge      how long the oldest of it has waited
//   executor_begun_total{executor},          counter    work that a thread began; work whose call
//   executor_withdrawn_total{executor}                  ended before
//   rpc_received_bytes_total{method}         counter    of tensor data
//   rpc_sent_bytes_total{method}             counter    of tensor data
//   chunks_rejected_total{reason}            counter    chunks that were not taken
//   connections_refused_total                counter    for want of file descriptors
//   jobs_submitted_total{method,pattern}     counter    jobs accepted
//   jobs_finished_total{method,state,reason} counter    jobs ended; reason: why it stopped, or
//                                                       the error's reason or code
//   job_queue_seconds                        histogram  from acceptance to start
//   job_solve_seconds{method,device}         histogram  of jobs with a result
//   job_iterations{method}                   histogram  of jobs with a result
//   screened_iterations_total,               counter    iterations that looked only at columns that
//   screening_epochs_total                              could still change, and choices of these
//   job_active_share{method}                 histogram  of the weights, in screened iterations
//   job_relative_reduction{method}           histogram  1 - final/warm-start loss, with a result;
//                                                       with a shrinkage of H
//   jobs{state}                              gauge      jobs kept, by state
//   job_queue_depth                          gauge      jobs that wait for a worker
//   memory_budget_bytes, memory_used_bytes   gauge      room for tensors and uploads
//   disk_budget_bytes, disk_used_bytes       gauge      room for files of tensors and the
//                                                       database; 0: the disk's
//   database_bytes                           gauge      of the file of the database
//   job_budget_bytes, job_used_bytes         gauge      room for jobs that are kept
//   jobs_damaged                             gauge      whose records cannot be read
//   tensors_unchecked                        gauge      of an earlier run, bytes not checked yet
//   tensors_corrupt_total                    counter    of an earlier run, with other bytes
//   staging_budget_bytes, staging_used_bytes gauge      room for chunks on their way to disk
//   tensors, uploads, watchers               gauge      how many there are
//   tensors_reserved, tensors_limit          gauge      results that accepted jobs will store; most
//                                                       of these, tensors and uploads together
//   draining                                 gauge      1 while the server shuts down
//   open_descriptors, max_descriptors        gauge      of files, of the process
//   build_info{version,compiler,build_type}  gauge      always 1
//   device_info{device,description,default,  gauge      always 1, for every device there is;
//               reason}                                 reason: of the default one, why it is
//   device_lost{device}                      gauge      1 once a fault has made it useless
//   device_memory_budget_bytes{device},      gauge      what running jobs may reserve together of
//   device_memory_used_bytes{device}                    a CUDA device's memory, and have reserved
//   device_streams{device},                  gauge      jobs that may run there at once, and that
//   device_jobs{device}                                 do
//   device_gram_bytes{device}                gauge      Gram matrices that stay there for jobs
//   device_gram_uploads_total{device},       counter    Gram matrices uploaded for jobs, and jobs
//   device_gram_reuses_total{device}                    that found theirs there
//   start_time_seconds                       gauge      Unix time
//   gpu_memory_bytes{device,kind}            gauge      of the card: used, total
//   gpu_utilization_ratio{device},           gauge      share of the time in which a kernel ran, in
//   gpu_memory_utilization_ratio{device}                which memory was accessed
//   gpu_temperature_celsius{device},         gauge
//   gpu_power_watts{device}
//
// `method` of an RPC is "Service/Method"; every label has a fixed set of
// values, and what is not in it counts as "other". The metrics of executors and
// those from jobs to max_descriptors are computed at each scrape and absent before SetGauges; those
// of GPUs are what SetGpus' function says at each scrape.
#ifndef SPARSEFW_SERVER_METRICS_PROMETHEUS_METRICS_H_
#define SPARSEFW_SERVER_METRICS_PROMETHEUS_METRICS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/metrics/gpu_sample.h"
#include "server/metrics/metrics.h"

namespace prometheus {
class Collectable;
}  // namespace prometheus

namespace sparsefw::server {

struct BuildInfo {
  std::string version;
  std::string compiler;
  std::string build_type;
};

struct DeviceInfo {
  std::string name;  // "cpu", "cuda:0"
  std::string description;
  bool is_default = false;
  std::string reason;  // of the default one: why it is
};

class PrometheusMetrics : public Metrics {
 public:
  // `latest` is called at every scrape and does not block; set once, before the first.
  virtual void SetGpus(std::function<std::vector<GpuSample>()> latest) = 0;
  // The metrics that an endpoint serves. Valid after this object is gone.
  virtual std::vector<std::shared_ptr<prometheus::Collectable>> collectables() const = 0;
};

std::unique_ptr<PrometheusMetrics> NewPrometheusMetrics(const BuildInfo& build,
                                                        const std::vector<DeviceInfo>& devices,
                                                        absl::Time start_time);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_PROMETHEUS_METRICS_H_
