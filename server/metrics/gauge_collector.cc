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

prometheus::MetricFamily Counter(const char* name, const char* help, int64_t value) {
  prometheus::ClientMetric metric;
  metric.counter.value = static_cast<double>(value);
  return {name, help, prometheus::MetricType::Counter, {metric}};
}

prometheus::MetricFamily JobsByState(const Gauges& gauges) {
  prometheus::MetricFamily family{
      "sparsefw_jobs", "Jobs kept, by state.", prometheus::MetricType::Gauge, {}};
  const auto add = [&family](JobState state, int64_t count) {
    prometheus::ClientMetric metric = Value(count);
    metric.label.push_back({"state", std::string(NameOf(state))});
    family.metric.push_back(std::move(metric));
  };
  add(JobState::kQueued, gauges.jobs_queued);
  add(JobState::kRunning, gauges.jobs_running);
  if (gauges.jobs_kept.has_value()) {
    add(JobState::kSucceeded, gauges.jobs_kept->succeeded);
    add(JobState::kFailed, gauges.jobs_kept->failed);
    add(JobState::kCancelled, gauges.jobs_kept->cancelled);
  }
  return family;
}

prometheus::MetricFamily TenantsByState(const Gauges& gauges) {
  prometheus::MetricFamily family{
      "sparsefw_tenants", "Tenants with jobs of a state.", prometheus::MetricType::Gauge, {}};
  for (const auto& [state, count] : {std::pair(JobState::kQueued, gauges.tenants_waiting),
                                     std::pair(JobState::kRunning, gauges.tenants_running)}) {
    prometheus::ClientMetric metric = Value(count);
    metric.label.push_back({"state", std::string(NameOf(state))});
    family.metric.push_back(std::move(metric));
  }
  return family;
}

prometheus::MetricFamily ByDevice(const char* name, const char* help, const Gauges& gauges,
                                  int64_t (*value)(const DeviceUsage&)) {
  prometheus::MetricFamily family{name, help, prometheus::MetricType::Gauge, {}};
  for (const DeviceUsage& usage : gauges.devices) {
    prometheus::ClientMetric metric = Value(value(usage));
    metric.label.push_back({"device", usage.device.name});
    family.metric.push_back(std::move(metric));
  }
  return family;
}

prometheus::MetricFamily CountByDevice(const char* name, const char* help, const Gauges& gauges,
                                       int64_t (*value)(const DeviceUsage&)) {
  prometheus::MetricFamily family = ByDevice(name, help, gauges, value);
  family.type = prometheus::MetricType::Counter;
  for (prometheus::ClientMetric& metric : family.metric) {
    metric.counter.value = metric.gauge.value;
  }
  return family;
}

prometheus::MetricFamily ByExecutor(const char* name, const char* help, const Gauges& gauges,
                                    prometheus::MetricType type,
                                    double (*value)(const ExecutorGauges&)) {
  prometheus::MetricFamily family{name, help, type, {}};
  for (const ExecutorGauges& executor : gauges.executors) {
    prometheus::ClientMetric metric;
    (type == prometheus::MetricType::Gauge ? metric.gauge.value : metric.counter.value) =
        value(executor);
    metric.label.push_back({"executor", std::string(executor.name)});
    family.metric.push_back(std::move(metric));
  }
  return family;
}

void AddExecutors(const Gauges& gauges, std::vector<prometheus::MetricFamily>* families) {
  if (gauges.executors.empty()) return;
  constexpr auto kGauge = prometheus::MetricType::Gauge;
  constexpr auto kCounter = prometheus::MetricType::Counter;
  families->push_back(
      ByExecutor("sparsefw_executor_queue_length", "Work of calls that waits for a thread.", gauges,
                 kGauge, [](const ExecutorGauges& e) { return static_cast<double>(e.queued); }));
  families->push_back(ByExecutor(
      "sparsefw_executor_oldest_wait_seconds", "How long the oldest of it has waited.", gauges,
      kGauge, [](const ExecutorGauges& e) { return absl::ToDoubleSeconds(e.oldest_wait); }));
  families->push_back(
      ByExecutor("sparsefw_executor_begun_total", "Work of calls that a thread has begun.", gauges,
                 kCounter, [](const ExecutorGauges& e) { return static_cast<double>(e.begun); }));
  families->push_back(ByExecutor(
      "sparsefw_executor_withdrawn_total", "Work of calls that ended before a thread began it.",
      gauges, kCounter, [](const ExecutorGauges& e) { return static_cast<double>(e.withdrawn); }));
}

// Nothing where there is no pool.
void AddDevices(const Gauges& gauges, std::vector<prometheus::MetricFamily>* families) {
  if (gauges.devices.empty()) return;
  families->push_back(ByDevice("sparsefw_device_lost", "1 once a fault has made it useless.",
                               gauges, [](const DeviceUsage& u) { return int64_t{u.lost}; }));
  families->push_back(ByDevice("sparsefw_device_memory_budget_bytes",
                               "Its memory that running jobs may reserve together.", gauges,
                               [](const DeviceUsage& u) { return u.device.memory_bytes; }));
  families->push_back(ByDevice("sparsefw_device_memory_used_bytes",
                               "Of it reserved by running jobs.", gauges,
                               [](const DeviceUsage& u) { return u.reserved_bytes; }));
  families->push_back(ByDevice("sparsefw_device_streams", "Jobs that may run there at once.",
                               gauges,
                               [](const DeviceUsage& u) { return int64_t{u.device.streams}; }));
  families->push_back(ByDevice("sparsefw_device_jobs", "Jobs that run there.", gauges,
                               [](const DeviceUsage& u) { return int64_t{u.jobs}; }));
  families->push_back(ByDevice("sparsefw_device_gram_bytes",
                               "Gram matrices that stay there for jobs.", gauges,
                               [](const DeviceUsage& u) { return u.gram_bytes; }));
  families->push_back(CountByDevice("sparsefw_device_gram_uploads_total",
                                    "Gram matrices uploaded for jobs.", gauges,
                                    [](const DeviceUsage& u) { return u.gram_uploads; }));
  families->push_back(CountByDevice("sparsefw_device_gram_reuses_total",
                                    "Jobs that found their Gram matrix there.", gauges,
                                    [](const DeviceUsage& u) { return u.gram_reuses; }));
}

void AddKeptJobs(const Gauges& gauges, std::vector<prometheus::MetricFamily>* families) {
  families->push_back(
      Gauge("sparsefw_job_budget_bytes", "Room for jobs that are kept.", gauges.job_budget_bytes));
  families->push_back(
      Gauge("sparsefw_database_bytes", "Of the file of the database.", gauges.database_bytes));
  if (!gauges.jobs_kept.has_value()) return;
  families->push_back(Gauge("sparsefw_job_used_bytes",
                            "Of it taken by jobs, with room for the results of unfinished ones.",
                            gauges.jobs_kept->bytes));
  families->push_back(Gauge("sparsefw_jobs_damaged", "Jobs whose records cannot be read.",
                            gauges.jobs_kept->damaged));
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
  std::vector<prometheus::MetricFamily> families = {
      JobsByState(now),
      TenantsByState(now),
      Gauge("sparsefw_job_queue_depth", "Jobs that wait for a worker.", now.jobs_queued),
      Counter("sparsefw_job_count_failures_total",
              "Scrapes at which the job store could not be read.", now.store_count_failures),
      Gauge("sparsefw_memory_budget_bytes", "Room for tensors and uploads.",
            now.memory_budget_bytes),
      Gauge("sparsefw_memory_used_bytes", "Of it reserved by tensors and uploads.",
            now.memory_used_bytes),
      Gauge("sparsefw_disk_budget_bytes",
            "Room for files of tensors and the database; 0: the disk's.", now.disk_budget_bytes),
      Gauge("sparsefw_disk_used_bytes", "Of it taken by the database, tensors and uploads.",
            now.disk_used_bytes),
      Gauge("sparsefw_staging_budget_bytes", "Room for chunks on their way to disk.",
            now.staging_budget_bytes),
      Gauge("sparsefw_staging_used_bytes", "Of it used by chunks on their way to disk.",
            now.staging_used_bytes),
      Gauge("sparsefw_solve_memory_budget_bytes", "Working memory of all running jobs together.",
            now.solve_memory_budget_bytes),
      Gauge("sparsefw_solve_memory_used_bytes", "Of it reserved by running jobs.",
            now.solve_memory_used_bytes),
      Gauge("sparsefw_tensors", "Tensors stored.", now.tensors),
      Gauge("sparsefw_tensors_reserved", "Results that accepted jobs will store.",
            now.tensors_reserved),
      Gauge("sparsefw_tensors_limit", "Most tensors, reserved ones and uploads together.",
            now.max_tensors),
      Gauge("sparsefw_tensors_unchecked",
            "Tensors of an earlier run whose bytes were not checked yet.", now.tensors_unchecked),
      Counter("sparsefw_tensors_corrupt_total",
              "Tensors of an earlier run whose bytes are not what was stored.",
              now.tensors_corrupt),
      Gauge("sparsefw_uploads", "Uploads begun and not finished.", now.uploads),
      Gauge("sparsefw_watchers", "Watches open.", now.watchers),
      Gauge("sparsefw_connections", "Connections to the gRPC port.", now.connections.connections),
      Gauge("sparsefw_peers", "Addresses that they come from.", now.connections.peers),
      Gauge("sparsefw_calls", "Calls open on them, health checks included.", now.connections.calls),
      Gauge("sparsefw_unfinished_bytes", "Received of messages that are not whole.",
            now.connections.unfinished_bytes),
      Gauge("sparsefw_held_bytes", "Messages and responses that calls on connections hold.",
            now.connections.held_bytes),
      Counter("sparsefw_connections_closed_total",
              "Connections closed for the bytes of messages that are not whole.",
              now.connections.closed),
      Gauge("sparsefw_draining", "1 while the server shuts down.", now.draining ? 1 : 0),
      Gauge("sparsefw_open_descriptors", "File descriptors that are open.", now.open_descriptors),
      Gauge("sparsefw_max_descriptors", "File descriptors that the process may open.",
            now.max_descriptors),
  };
  if (now.tls_certificate_expiry.has_value()) {
    families.push_back(Gauge("sparsefw_tls_certificate_expiry_timestamp_seconds",
                             "Unix time at which the served certificate expires.",
                             absl::ToUnixSeconds(*now.tls_certificate_expiry)));
  }
  AddExecutors(now, &families);
  AddKeptJobs(now, &families);
  AddDevices(now, &families);
  return families;
}

}  // namespace sparsefw::server
