#include "server/metrics/prometheus_metrics.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <utility>

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/metrics/gauge_collector.h"
#include "server/metrics/labels.h"
#include "sparsefw/solver.h"

namespace sparsefw::server {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

Buckets DurationBuckets() {
  return {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000};
}
Buckets IterationBuckets() { return {1, 10, 30, 100, 200, 500, 1000, 2000, 5000, 10000}; }
Buckets ReductionBuckets() { return {0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9}; }
Buckets GapBuckets() { return {0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7}; }
Buckets ShareBuckets() { return {0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5}; }

std::map<std::string, std::string> Label(const char* name, std::string_view value) {
  return {{name, std::string(value)}};
}

constexpr size_t kCodes = 17;  // gRPC's status codes, by number

// The metrics of one RPC method, looked up once.
struct RpcMetrics {
  Counter* started = nullptr;
  Gauge* in_flight = nullptr;
  Counter* received_bytes = nullptr;
  Counter* sent_bytes = nullptr;
  // One per code, made at its first use: most pairs never occur.
  std::array<std::atomic<Histogram*>, kCodes> duration = {};
};

class PrometheusMetricsImpl final : public PrometheusMetrics {
 public:
  PrometheusMetricsImpl(const BuildInfo& build, const std::vector<DeviceInfo>& devices,
                        absl::Time start_time);

  void RpcStarted(std::string_view method) override {
    RpcMetrics& rpc = rpcs_[RpcMethodIndex(method)];
    rpc.started->Increment();
    rpc.in_flight->Increment();
  }
  void RpcEnded(std::string_view method, absl::StatusCode code, absl::Duration duration) override {
    const size_t index = RpcMethodIndex(method);
    rpcs_[index].in_flight->Decrement();
    DurationOf(index, code).Observe(absl::ToDoubleSeconds(duration));
  }
  void BytesReceived(std::string_view method, int64_t bytes) override {
    rpcs_[RpcMethodIndex(method)].received_bytes->Increment(static_cast<double>(bytes));
  }
  void BytesSent(std::string_view method, int64_t bytes) override {
    rpcs_[RpcMethodIndex(method)].sent_bytes->Increment(static_cast<double>(bytes));
  }
  void ChunkRejected(std::string_view reason) override {
    chunks_rejected_.Add(Label("reason", ReasonLabel(reason))).Increment();
  }
  void RpcRefused(const absl::Status& error) override {
    if (error.ok() || absl::IsCancelled(error)) return;
    rpc_refused_.Add(Label("reason", ErrorLabel(error))).Increment();
  }
  void ConnectionRefused() override { connections_refused_.Increment(); }
  void JobAccepted(const Job& job) override;
  void JobRecovered() override { jobs_recovered_.Increment(); }
  void JobStarted(const Job& job) override {
    // The wall clock may have been set back in between.
    job_queue_seconds_.Observe(
        absl::ToDoubleSeconds(std::max(job.start_time - job.create_time, absl::ZeroDuration())));
  }
  void JobEnded(const Job& job) override;
  void SetGauges(std::function<Gauges()> compute) override { gauges_->Set(std::move(compute)); }

  std::vector<std::shared_ptr<prometheus::Collectable>> collectables() const override {
    return {registry_, gauges_};
  }

 private:
  Family<Counter>& CounterFamily(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_);
  }
  Family<Gauge>& GaugeFamily(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_);
  }
  Family<Histogram>& HistogramFamily(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_);
  }
  Histogram& DurationOf(size_t method, absl::StatusCode code);

  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  const std::shared_ptr<GaugeCollector> gauges_ = std::make_shared<GaugeCollector>();

  Family<Histogram>& rpc_duration_ =
      HistogramFamily("sparsefw_rpc_duration_seconds", "Duration of ended RPCs.");
  Family<Counter>& rpc_refused_ = CounterFamily(
      "sparsefw_rpc_refused_total", "RPCs that ended with an error, by reason, else by code.");
  Family<Counter>& chunks_rejected_ = CounterFamily(
      "sparsefw_chunks_rejected_total", "Chunks of tensor data that were not taken, by reason.");
  Counter& connections_refused_ =
      CounterFamily("sparsefw_connections_refused_total",
                    "Connections of either port that were refused, or gave up their place.")
          .Add({});
  Family<Counter>& jobs_submitted_ =
      CounterFamily("sparsefw_jobs_submitted_total", "Jobs accepted.");
  Counter& jobs_recovered_ =
      CounterFamily("sparsefw_jobs_recovered_total",
                    "Jobs of an earlier process that had not ended, taken over at the start.")
          .Add({});
  Family<Counter>& jobs_finished_ =
      CounterFamily("sparsefw_jobs_finished_total", "Jobs ended, by state and reason.");
  Histogram& job_queue_seconds_ =
      HistogramFamily("sparsefw_job_queue_seconds", "Time from acceptance to start.")
          .Add({}, DurationBuckets());
  Family<Histogram>& job_solve_seconds_ =
      HistogramFamily("sparsefw_job_solve_seconds", "Time of solving, of jobs with a result.");
  Family<Histogram>& job_iterations_ = HistogramFamily(
      "sparsefw_job_iterations", "Frank-Wolfe iterations run, of jobs with a result.");
  Counter& screened_iterations_ =
      CounterFamily("sparsefw_screened_iterations_total",
                    "Frank-Wolfe iterations that looked only at columns that could still change.")
          .Add({});
  Counter& screening_epochs_ =
      CounterFamily("sparsefw_screening_epochs_total",
                    "Times that jobs chose the columns of screened iterations.")
          .Add({});
  Family<Histogram>& job_active_ratio_ = HistogramFamily(
      "sparsefw_job_active_ratio",
      "Share of the weights that screened iterations looked at, of jobs with some.");
  Family<Histogram>& job_reduction_ratio_ = HistogramFamily(
      "sparsefw_job_reduction_ratio", "1 - final loss / warm-start loss, of jobs with a result.");
  Family<Histogram>& job_gap_ratio_ =
      HistogramFamily("sparsefw_job_gap_ratio",
                      "1 - certified lower bound / final loss, of jobs with a certificate.");
  std::array<RpcMetrics, kRpcMethods.size()> rpcs_;
};

PrometheusMetricsImpl::PrometheusMetricsImpl(const BuildInfo& build,
                                             const std::vector<DeviceInfo>& devices,
                                             absl::Time start_time) {
  GaugeFamily("sparsefw_build_info", "What is running; always 1.")
      .Add({{"version", build.version},
            {"compiler", build.compiler},
            {"build_type", build.build_type}})
      .Set(1);
  auto& device_info =
      GaugeFamily("sparsefw_device_info", "Devices, and which is the default and why; always 1.");
  for (const DeviceInfo& device : devices) {
    device_info
        .Add({{"device", device.name},
              {"description", device.description},
              {"default", device.is_default ? "true" : "false"},
              {"reason", device.reason}})
        .Set(1);
  }
  GaugeFamily("sparsefw_start_time_seconds", "When the server started, in Unix time.")
      .Add({})
      .Set(absl::ToDoubleSeconds(start_time - absl::UnixEpoch()));

  auto& started = CounterFamily("sparsefw_rpc_started_total", "RPCs begun.");
  auto& in_flight = GaugeFamily("sparsefw_rpc_in_flight", "RPCs begun and not ended.");
  auto& received =
      CounterFamily("sparsefw_rpc_received_bytes_total", "Tensor data received, in bytes.");
  auto& sent = CounterFamily("sparsefw_rpc_sent_bytes_total", "Tensor data sent, in bytes.");
  for (size_t i = 0; i < kRpcMethods.size(); ++i) {
    const auto label = Label("method", kRpcMethods[i]);
    rpcs_[i].started = &started.Add(label);
    rpcs_[i].in_flight = &in_flight.Add(label);
    rpcs_[i].received_bytes = &received.Add(label);
    rpcs_[i].sent_bytes = &sent.Add(label);
    DurationOf(i, absl::StatusCode::kOk);
  }
}

// Two threads may come at once; the family gives both the same histogram.
Histogram& PrometheusMetricsImpl::DurationOf(size_t method, absl::StatusCode code) {
  const auto number = static_cast<size_t>(code);
  std::atomic<Histogram*>& cached =
      rpcs_[method]
          .duration[number < kCodes ? number : static_cast<size_t>(absl::StatusCode::kUnknown)];
  Histogram* histogram = cached.load(std::memory_order_acquire);
  if (histogram == nullptr) {
    histogram =
        &rpc_duration_.Add({{"method", std::string(kRpcMethods[method])}, {"code", CodeName(code)}},
                           DurationBuckets());
    cached.store(histogram, std::memory_order_release);
  }
  return *histogram;
}

void PrometheusMetricsImpl::JobAccepted(const Job& job) {
  jobs_submitted_
      .Add({{"method", std::string(NameOf(job.spec.options.method))},
            {"pattern", std::string(NameOf(job.spec.pattern.kind))}})
      .Increment();
}

void PrometheusMetricsImpl::JobEnded(const Job& job) {
  const std::string method(NameOf(job.spec.options.method));
  jobs_finished_
      .Add({{"method", method},
            {"state", std::string(NameOf(job.state))},
            {"reason", EndReasonLabel(job)}})
      .Increment();
  if (!job.result) return;
  const SolveSummary& solve = job.result->solve;
  job_solve_seconds_
      .Add({{"method", method}, {"device", std::string(DeviceLabel(job.result->device))}},
           DurationBuckets())
      .Observe(absl::ToDoubleSeconds(solve.solve_time));
  job_iterations_.Add(Label("method", method), IterationBuckets())
      .Observe(static_cast<double>(solve.iterations));
  if (solve.screening.iterations > 0) {
    screened_iterations_.Increment(static_cast<double>(solve.screening.iterations));
    screening_epochs_.Increment(static_cast<double>(solve.screening.epochs));
    job_active_ratio_.Add(Label("method", method), ShareBuckets())
        .Observe(solve.screening.active_share);
  }
  job_reduction_ratio_.Add(Label("method", method), ReductionBuckets())
      .Observe(solve.relative_reduction);
  // A bound of 0 says nothing.
  if (solve.lower_bound > 0 && solve.final_loss > 0) {
    job_gap_ratio_.Add(Label("method", method), GapBuckets())
        .Observe(std::max(0.0, 1 - solve.lower_bound / solve.final_loss));
  }
}

}  // namespace

std::unique_ptr<PrometheusMetrics> NewPrometheusMetrics(const BuildInfo& build,
                                                        const std::vector<DeviceInfo>& devices,
                                                        absl::Time start_time) {
  return std::make_unique<PrometheusMetricsImpl>(build, devices, start_time);
}

}  // namespace sparsefw::server
