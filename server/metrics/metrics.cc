#include "server/metrics/metrics.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "absl/algorithm/container.h"
#include "prometheus/text_serializer.h"
#include "sparsefw/solver.h"

namespace sparsefw::server {
namespace {

using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

Buckets IterationBuckets() { return {1, 10, 30, 100, 200, 500, 1000, 2000, 5000, 10000}; }
Buckets ReductionBuckets() { return {0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9}; }
Buckets GapBuckets() { return {0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7}; }
Buckets ShareBuckets() { return {0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5}; }

std::map<std::string, std::string> Label(const char* name, std::string_view value) {
  return {{name, std::string(value)}};
}

}  // namespace

Buckets Metrics::DurationBuckets() {
  return {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000};
}

Metrics::Metrics(const BuildInfo& build, const std::vector<DeviceInfo>& devices,
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

std::string Metrics::Text() const {
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  if (compute_) absl::c_move(FamiliesOf(compute_()), std::back_inserter(families));
  return prometheus::TextSerializer().Serialize(families);
}

// Two threads may come at once; the family gives both the same histogram.
Histogram& Metrics::DurationOf(size_t method, absl::StatusCode code) {
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

void Metrics::ChunkRejected(std::string_view reason) {
  chunks_rejected_.Add(Label("reason", ReasonLabel(reason))).Increment();
}

void Metrics::RpcRefused(const absl::Status& error) {
  if (error.ok() || absl::IsCancelled(error)) return;
  rpc_refused_.Add(Label("reason", ErrorLabel(error))).Increment();
}

void Metrics::JobBackgroundError(const absl::Status& error) {
  job_background_errors_.Add(Label("reason", ErrorLabel(error))).Increment();
}

void Metrics::JobStarted(const Job& job) {
  // The wall clock may have been set back in between.
  job_queue_seconds_.Observe(
      absl::ToDoubleSeconds(std::max(job.start_time - job.create_time, absl::ZeroDuration())));
}

void Metrics::JobAccepted(const Job& job) {
  jobs_submitted_
      .Add({{"method", std::string(NameOf(job.spec.options.method))},
            {"pattern", std::string(NameOf(job.spec.pattern.kind))}})
      .Increment();
}

void Metrics::JobEnded(const Job& job) {
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

}  // namespace sparsefw::server
