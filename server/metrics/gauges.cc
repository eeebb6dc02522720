#include "server/metrics/gauges.h"

#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "server/jobs/job.h"

namespace sparsefw::server {
namespace {

using prometheus::MetricFamily;
using Type = prometheus::MetricType;
using Labels = std::vector<prometheus::ClientMetric::Label>;

prometheus::ClientMetric Metric(Type type, double value, Labels labels = {}) {
  prometheus::ClientMetric metric;
  (type == Type::Gauge ? metric.gauge.value : metric.counter.value) = value;
  metric.label = std::move(labels);
  return metric;
}

MetricFamily Gauge(const char* name, const char* help, int64_t value) {
  return {name, help, Type::Gauge, {Metric(Type::Gauge, static_cast<double>(value))}};
}

MetricFamily Counter(const char* name, const char* help, int64_t value) {
  return {name, help, Type::Counter, {Metric(Type::Counter, static_cast<double>(value))}};
}

MetricFamily ByState(const char* name, const char* help,
                     const std::vector<std::pair<JobState, int64_t>>& counts) {
  MetricFamily family{name, help, Type::Gauge, {}};
  for (const auto& [state, count] : counts) {
    family.metric.push_back(
        Metric(Type::Gauge, static_cast<double>(count), {{"state", std::string(NameOf(state))}}));
  }
  return family;
}

MetricFamily JobsByState(const Gauges& gauges) {
  std::vector<std::pair<JobState, int64_t>> counts = {{JobState::kQueued, gauges.jobs_queued},
                                                      {JobState::kRunning, gauges.jobs_running}};
  if (gauges.jobs_kept.has_value()) {
    counts.emplace_back(JobState::kSucceeded, gauges.jobs_kept->succeeded);
    counts.emplace_back(JobState::kFailed, gauges.jobs_kept->failed);
    counts.emplace_back(JobState::kCancelled, gauges.jobs_kept->cancelled);
  }
  return ByState("sparsefw_jobs", "Jobs kept, by state.", counts);
}

// One value of every device, executor or GPU. Value: double, or optional where a reading may be
// missing.
template <typename Item, typename Value = double>
struct Row {
  const char* name;
  const char* help;
  Type type;
  Value (*value)(const Item&);
};

constexpr Row<DeviceUsage> kDevices[] = {
    {"sparsefw_device_lost", "1 once a fault has made it useless.", Type::Gauge,
     [](const DeviceUsage& u) { return u.lost ? 1.0 : 0.0; }},
    {"sparsefw_device_memory_budget_bytes", "Its memory that running jobs may reserve together.",
     Type::Gauge, [](const DeviceUsage& u) { return static_cast<double>(u.device.memory_bytes); }},
    {"sparsefw_device_memory_used_bytes", "Memory reserved by running jobs.", Type::Gauge,
     [](const DeviceUsage& u) { return static_cast<double>(u.reserved_bytes); }},
    {"sparsefw_device_streams", "Jobs that may run there at once.", Type::Gauge,
     [](const DeviceUsage& u) { return static_cast<double>(u.device.streams); }},
    {"sparsefw_device_jobs", "Jobs that run there.", Type::Gauge,
     [](const DeviceUsage& u) { return static_cast<double>(u.jobs); }},
    {"sparsefw_device_gram_bytes", "Gram matrices that stay there for jobs.", Type::Gauge,
     [](const DeviceUsage& u) { return static_cast<double>(u.gram_bytes); }},
    {"sparsefw_device_gram_uploads_total", "Gram matrices uploaded for jobs.", Type::Counter,
     [](const DeviceUsage& u) { return static_cast<double>(u.gram_uploads); }},
    {"sparsefw_device_gram_reuses_total", "Jobs that found their Gram matrix there.", Type::Counter,
     [](const DeviceUsage& u) { return static_cast<double>(u.gram_reuses); }},
};

constexpr Row<ExecutorGauges> kExecutors[] = {
    {"sparsefw_executor_queue_length", "Work of calls that waits for a thread.", Type::Gauge,
     [](const ExecutorGauges& e) { return static_cast<double>(e.queued); }},
    {"sparsefw_executor_oldest_wait_seconds", "How long the oldest of it has waited.", Type::Gauge,
     [](const ExecutorGauges& e) { return absl::ToDoubleSeconds(e.oldest_wait); }},
    {"sparsefw_executor_begun_total", "Work of calls that a thread has begun.", Type::Counter,
     [](const ExecutorGauges& e) { return static_cast<double>(e.begun); }},
    {"sparsefw_executor_withdrawn_total", "Work of calls that ended before a thread began it.",
     Type::Counter, [](const ExecutorGauges& e) { return static_cast<double>(e.withdrawn); }},
};

std::optional<double> BytesOf(const GpuSample& sample, int64_t GpuSample::Memory::*bytes) {
  if (!sample.memory) return std::nullopt;
  return static_cast<double>((*sample.memory).*bytes);
}

constexpr Row<GpuSample, std::optional<double>> kGpus[] = {
    {"sparsefw_gpu_memory_used_bytes", "Memory of the GPU in use by whomever.", Type::Gauge,
     [](const GpuSample& s) { return BytesOf(s, &GpuSample::Memory::used_bytes); }},
    {"sparsefw_gpu_memory_capacity_bytes", "Memory of the GPU.", Type::Gauge,
     [](const GpuSample& s) { return BytesOf(s, &GpuSample::Memory::total_bytes); }},
    {"sparsefw_gpu_utilization_ratio", "Share of the time in which a kernel ran.", Type::Gauge,
     [](const GpuSample& s) { return s.utilization; }},
    {"sparsefw_gpu_memory_utilization_ratio",
     "Share of the time in which the GPU's memory was read or written.", Type::Gauge,
     [](const GpuSample& s) { return s.memory_utilization; }},
    {"sparsefw_gpu_temperature_celsius", "Temperature of the GPU.", Type::Gauge,
     [](const GpuSample& s) { return s.temperature_celsius; }},
    {"sparsefw_gpu_power_watts", "Power that the GPU draws.", Type::Gauge,
     [](const GpuSample& s) { return s.power_watts; }},
};

// Families without a value are left out.
template <typename Item, typename Value, size_t rows>
void AddRows(const Row<Item, Value> (&table)[rows], const char* label,
             const std::vector<Item>& items, std::string (*name_of)(const Item&),
             std::vector<MetricFamily>* families) {
  for (const auto& [name, help, type, value] : table) {
    MetricFamily family{name, help, type, {}};
    for (const Item& item : items) {
      const std::optional<double> known = value(item);
      if (known) family.metric.push_back(Metric(type, *known, {{label, name_of(item)}}));
    }
    if (!family.metric.empty()) families->push_back(std::move(family));
  }
}

void AddKeptJobs(const Gauges& gauges, std::vector<MetricFamily>* families) {
  families->push_back(
      Gauge("sparsefw_job_budget_bytes", "Room for jobs that are kept.", gauges.job_budget_bytes));
  families->push_back(
      Gauge("sparsefw_database_bytes", "Size of the database's file.", gauges.database_bytes));
  if (!gauges.jobs_kept.has_value()) return;
  families->push_back(Gauge("sparsefw_job_used_bytes",
                            "Records of jobs, with room for the results of unfinished ones.",
                            gauges.jobs_kept->bytes));
  families->push_back(Gauge("sparsefw_jobs_damaged", "Jobs whose records cannot be read.",
                            gauges.jobs_kept->damaged));
}

std::vector<prometheus::MetricFamily> JobsAndTensors(const Gauges& now) {
  return {
      JobsByState(now),
      ByState(
          "sparsefw_tenants", "Tenants with jobs of a state.",
          {{JobState::kQueued, now.tenants_waiting}, {JobState::kRunning, now.tenants_running}}),
      Gauge("sparsefw_job_queue_depth", "Jobs that wait for a worker.", now.jobs_queued),
      Counter("sparsefw_job_count_failures_total",
              "Scrapes at which the job store could not be read.", now.store_count_failures),
      Gauge("sparsefw_memory_budget_bytes", "Room for tensors and uploads.",
            now.tensors.budget_bytes),
      Gauge("sparsefw_memory_used_bytes", "Room reserved by tensors and uploads.",
            now.tensors.used_bytes),
      Gauge("sparsefw_disk_budget_bytes",
            "Room for files of tensors and the database; 0: the disk's.",
            now.tensors.disk_budget_bytes),
      Gauge("sparsefw_disk_used_bytes", "Disk taken by the database, tensors and uploads.",
            now.tensors.disk_used_bytes),
      Gauge("sparsefw_device_sum_budget_bytes",
            "Memory of the default GPU for Gram sums of activations.",
            now.tensors.device_sum_budget_bytes),
      Gauge("sparsefw_device_sum_used_bytes", "What such sums reserve of it.",
            now.tensors.device_sum_used_bytes),
      Counter("sparsefw_sums_without_device_room_total",
              "Gram sums made on the CPU because the GPU had no room or was lost.",
              now.tensors.sums_without_room),
      Gauge("sparsefw_staging_budget_bytes", "Room for chunks on their way to disk.",
            now.staging_budget_bytes),
      Gauge("sparsefw_staging_used_bytes", "Room used by chunks on their way to disk.",
            now.staging_used_bytes),
      Gauge("sparsefw_solve_memory_budget_bytes", "Working memory of all running jobs together.",
            now.solve_memory_budget_bytes),
      Gauge("sparsefw_solve_memory_used_bytes", "Memory reserved by running jobs.",
            now.solve_memory_used_bytes),
      Gauge("sparsefw_tensors", "Tensors stored.", now.tensors.tensors),
      Gauge("sparsefw_tensors_reserved", "Results that accepted jobs will store.",
            now.tensors.reserved),
      Gauge("sparsefw_tensors_limit", "Most tensors, reserved ones and uploads together.",
            now.tensors.max_tensors),
      Gauge("sparsefw_tensors_unchecked",
            "Tensors of an earlier run whose bytes were not checked yet.", now.tensors.unchecked),
      Counter("sparsefw_tensors_corrupt_total",
              "Tensors of an earlier run whose bytes are not what was stored.",
              now.tensors.corrupt),
  };
}

std::vector<prometheus::MetricFamily> Traffic(const Gauges& now) {
  return {
      Gauge("sparsefw_uploads", "Uploads begun and not finished.", now.tensors.uploads),
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
}

}  // namespace

std::vector<MetricFamily> FamiliesOf(const Gauges& now) {
  std::vector<MetricFamily> families = JobsAndTensors(now);
  absl::c_move(Traffic(now), std::back_inserter(families));
  if (now.tls_certificate_expiry.has_value()) {
    families.push_back(Gauge("sparsefw_tls_certificate_expiry_timestamp_seconds",
                             "Unix time at which the served certificate expires.",
                             absl::ToUnixSeconds(*now.tls_certificate_expiry)));
  }
  AddRows(
      kExecutors, "executor", now.executors,
      +[](const ExecutorGauges& e) { return std::string(e.name); }, &families);
  AddKeptJobs(now, &families);
  AddRows(
      kDevices, "device", now.devices, +[](const DeviceUsage& u) { return u.device.name; },
      &families);
  AddRows(
      kGpus, "device", now.gpus, +[](const GpuSample& s) { return s.device; }, &families);
  return families;
}

}  // namespace sparsefw::server
