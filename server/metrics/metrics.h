// Metrics in Prometheus' form: docs/metrics.md lists them. All names begin with sparsefw_; base
// units. Every label has a fixed set of values, and what is not in it counts as "other", a code as
// "UNKNOWN". Gauges are computed at each scrape and absent before SetGauges.
#ifndef SPARSEFW_SERVER_METRICS_METRICS_H_
#define SPARSEFW_SERVER_METRICS_METRICS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/jobs/job.h"
#include "server/metrics/gauges.h"
#include "server/metrics/labels.h"

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

// Thread-safe; every call is quick.
class Metrics {
 public:
  Metrics(const BuildInfo& build, const std::vector<DeviceInfo>& devices, absl::Time start_time);

  // method: "TensorService/WriteTensor"
  void RpcStarted(std::string_view method) {
    RpcMetrics& rpc = rpcs_[RpcMethodIndex(method)];
    rpc.started->Increment();
    rpc.in_flight->Increment();
  }
  void RpcEnded(std::string_view method, absl::StatusCode code, absl::Duration duration) {
    const size_t index = RpcMethodIndex(method);
    rpcs_[index].in_flight->Decrement();
    DurationOf(index, code).Observe(absl::ToDoubleSeconds(duration));
  }
  void BytesReceived(std::string_view method, int64_t bytes) {
    rpcs_[RpcMethodIndex(method)].received_bytes->Increment(static_cast<double>(bytes));
  }
  void BytesSent(std::string_view method, int64_t bytes) {
    rpcs_[RpcMethodIndex(method)].sent_bytes->Increment(static_cast<double>(bytes));
  }
  void ChunkRejected(std::string_view reason);
  // A call that ended with an error, the client's giving up excepted.
  void RpcRefused(const absl::Status& error);
  // What failed for a job while no call waited: to store its start, its progress or its end.
  void JobBackgroundError(const absl::Status& error);
  // A connection of either port that was refused, or gave up its place.
  void ConnectionRefused() { connections_refused_.Increment(); }
  void JobAccepted(const Job& job);
  // A job of an earlier process, whatever becomes of it.
  void JobRecovered() { jobs_recovered_.Increment(); }
  void JobStarted(const Job& job);
  void JobEnded(const Job& job);
  // Called at every scrape; set once, before the first.
  void SetGauges(std::function<Gauges()> compute) { compute_ = std::move(compute); }

  // All of them, as an endpoint serves them.
  std::string Text() const;

 private:
  static constexpr size_t kCodes = 17;  // gRPC's status codes, by number

  // The metrics of one RPC method, looked up once.
  struct RpcMetrics {
    prometheus::Counter* started = nullptr;
    prometheus::Gauge* in_flight = nullptr;
    prometheus::Counter* received_bytes = nullptr;
    prometheus::Counter* sent_bytes = nullptr;
    // One per code, made at its first use: most pairs never occur.
    std::array<std::atomic<prometheus::Histogram*>, kCodes> duration = {};
  };

  prometheus::Family<prometheus::Counter>& CounterFamily(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry_);
  }
  prometheus::Family<prometheus::Gauge>& GaugeFamily(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry_);
  }
  prometheus::Family<prometheus::Histogram>& HistogramFamily(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry_);
  }
  static prometheus::Histogram::BucketBoundaries DurationBuckets();
  prometheus::Histogram& DurationOf(size_t method, absl::StatusCode code);

  prometheus::Registry registry_;
  std::function<Gauges()> compute_;  // empty before SetGauges

  prometheus::Family<prometheus::Histogram>& rpc_duration_ =
      HistogramFamily("sparsefw_rpc_duration_seconds", "Duration of ended RPCs.");
  prometheus::Family<prometheus::Counter>& rpc_refused_ = CounterFamily(
      "sparsefw_rpc_refused_total", "RPCs that ended with an error, by reason, else by code.");
  prometheus::Family<prometheus::Counter>& job_background_errors_ = CounterFamily(
      "sparsefw_job_background_errors_total",
      "What could not be stored of jobs while no call waited, by reason, else by code.");
  prometheus::Family<prometheus::Counter>& chunks_rejected_ = CounterFamily(
      "sparsefw_chunks_rejected_total", "Chunks of tensor data that were not taken, by reason.");
  prometheus::Counter& connections_refused_ =
      CounterFamily("sparsefw_connections_refused_total",
                    "Connections of either port that were refused, or gave up their place.")
          .Add({});
  prometheus::Family<prometheus::Counter>& jobs_submitted_ =
      CounterFamily("sparsefw_jobs_submitted_total", "Jobs accepted.");
  prometheus::Counter& jobs_recovered_ =
      CounterFamily("sparsefw_jobs_recovered_total",
                    "Jobs of an earlier process that had not ended, taken over at the start.")
          .Add({});
  prometheus::Family<prometheus::Counter>& jobs_finished_ =
      CounterFamily("sparsefw_jobs_finished_total", "Jobs ended, by state and reason.");
  prometheus::Histogram& job_queue_seconds_ =
      HistogramFamily("sparsefw_job_queue_seconds", "Time from acceptance to start.")
          .Add({}, DurationBuckets());
  prometheus::Family<prometheus::Histogram>& job_solve_seconds_ =
      HistogramFamily("sparsefw_job_solve_seconds", "Time of solving, of jobs with a result.");
  prometheus::Family<prometheus::Histogram>& job_iterations_ = HistogramFamily(
      "sparsefw_job_iterations", "Frank-Wolfe iterations run, of jobs with a result.");
  prometheus::Counter& screened_iterations_ =
      CounterFamily("sparsefw_screened_iterations_total",
                    "Frank-Wolfe iterations that looked only at columns that could still change.")
          .Add({});
  prometheus::Counter& screening_epochs_ =
      CounterFamily("sparsefw_screening_epochs_total",
                    "Times that jobs chose the columns of screened iterations.")
          .Add({});
  prometheus::Family<prometheus::Histogram>& job_active_ratio_ = HistogramFamily(
      "sparsefw_job_active_ratio",
      "Share of the weights that screened iterations looked at, of jobs with some.");
  prometheus::Family<prometheus::Histogram>& job_reduction_ratio_ = HistogramFamily(
      "sparsefw_job_reduction_ratio", "1 - final loss / warm-start loss, of jobs with a result.");
  prometheus::Family<prometheus::Histogram>& job_gap_ratio_ =
      HistogramFamily("sparsefw_job_gap_ratio",
                      "1 - certified lower bound / final loss, of jobs with a certificate.");
  std::array<RpcMetrics, kRpcMethods.size()> rpcs_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_METRICS_H_
