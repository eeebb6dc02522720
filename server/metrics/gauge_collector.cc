#include "server/metrics/gauge_collector.h"

#include <string>
#include <utility>

#include "server/metrics/labels.h"

namespace sparsefw::server {
namespace {

prometheus::ClientMetric Value(int64_t value) {
  prometheus::ClientMetric metric;
  metric.gauge.value = static_cast<double>(value);
  return metric;
}

prometheus::MetricFamily Gauge(const char* name, const char* help, int64_t value) {
  return {name, help, prometheus::MetricType::Gauge, {Value(value)}};
}

prometheus::MetricFamily JobsByState(const Gauges& gauges) {
  prometheus::MetricFamily family{
      "sparsefw_jobs", "Jobs kept, by state.", prometheus::MetricType::Gauge, {}};
  for (const auto& [state, count] : {std::pair(JobState::kQueued, gauges.jobs_queued),
                                     std::pair(JobState::kRunning, gauges.jobs_running),
                                     std::pair(JobState::kSucceeded, gauges.jobs_succeeded),
                                     std::pair(JobState::kFailed, gauges.jobs_failed),
                                     std::pair(JobState::kCancelled, gauges.jobs_cancelled)}) {
    prometheus::ClientMetric metric = Value(count);
    metric.label.push_back({"state", std::string(StateLabel(state))});
    family.metric.push_back(std::move(metric));
  }
  return family;
}

}  // namespace

void GaugeCollector::Set(std::function<Gauges()> compute) {
  MutexLock lock(mutex_);
  compute_ = std::move(compute);
}

std::vector<prometheus::MetricFamily> GaugeCollector::Collect() const {
  std::function<Gauges()> compute;
  {
    MutexLock lock(mutex_);
    compute = compute_;
  }
  if (!compute) return {};
  const Gauges now = compute();
  return {
      JobsByState(now),
      Gauge("sparsefw_job_queue_depth", "Jobs that wait for a worker.", now.jobs_queued),
      Gauge("sparsefw_memory_budget_bytes", "Room for tensors and uploads.",
            now.memory_budget_bytes),
      Gauge("sparsefw_memory_used_bytes", "Of it reserved by tensors and uploads.",
            now.memory_used_bytes),
      Gauge("sparsefw_staging_budget_bytes", "Room for chunks on their way to disk.",
            now.staging_budget_bytes),
      Gauge("sparsefw_staging_used_bytes", "Of it used by chunks on their way to disk.",
            now.staging_used_bytes),
      Gauge("sparsefw_solve_memory_budget_bytes", "Working memory of all running jobs together.",
            now.solve_memory_budget_bytes),
      Gauge("sparsefw_solve_memory_used_bytes", "Of it reserved by running jobs.",
            now.solve_memory_used_bytes),
      Gauge("sparsefw_tensors", "Tensors stored.", now.tensors),
      Gauge("sparsefw_uploads", "Uploads begun and not finished.", now.uploads),
      Gauge("sparsefw_watchers", "Watches open.", now.watchers),
      Gauge("sparsefw_draining", "1 while the server shuts down.", now.draining ? 1 : 0),
  };
}

}  // namespace sparsefw::server
