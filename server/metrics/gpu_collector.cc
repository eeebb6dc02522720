#include "server/metrics/gpu_collector.h"

#include <optional>
#include <string>
#include <utility>

namespace sparsefw::server {
namespace {

prometheus::ClientMetric Value(const GpuSample& sample, double value) {
  prometheus::ClientMetric metric;
  metric.label.push_back({"device", sample.device});
  metric.gauge.value = value;
  return metric;
}

prometheus::MetricFamily Gauge(const char* name, const char* help,
                               const std::vector<GpuSample>& samples,
                               std::optional<double> GpuSample::*field) {
  prometheus::MetricFamily family{name, help, prometheus::MetricType::Gauge, {}};
  for (const GpuSample& sample : samples) {
    if (sample.*field) family.metric.push_back(Value(sample, *(sample.*field)));
  }
  return family;
}

prometheus::MetricFamily Memory(const char* name, const char* help,
                                const std::vector<GpuSample>& samples,
                                int64_t GpuSample::Memory::*bytes) {
  prometheus::MetricFamily family{name, help, prometheus::MetricType::Gauge, {}};
  for (const GpuSample& sample : samples) {
    if (!sample.memory) continue;
    family.metric.push_back(Value(sample, static_cast<double>((*sample.memory).*bytes)));
  }
  return family;
}

}  // namespace

void GpuCollector::Set(std::function<std::vector<GpuSample>()> latest) {
  MutexLock lock(mutex_);
  latest_ = std::move(latest);
}

std::vector<prometheus::MetricFamily> GpuCollector::Collect() const {
  std::function<std::vector<GpuSample>()> latest;
  {
    MutexLock lock(mutex_);
    latest = latest_;
  }
  if (!latest) return {};
  const std::vector<GpuSample> samples = latest();
  std::vector<prometheus::MetricFamily> families = {
      Memory("sparsefw_gpu_memory_used_bytes", "Memory of the GPU in use by whomever.", samples,
             &GpuSample::Memory::used_bytes),
      Memory("sparsefw_gpu_memory_capacity_bytes", "Memory of the GPU.", samples,
             &GpuSample::Memory::total_bytes),
      Gauge("sparsefw_gpu_utilization_ratio", "Share of the time in which a kernel ran.", samples,
            &GpuSample::utilization),
      Gauge("sparsefw_gpu_memory_utilization_ratio",
            "Share of the time in which the GPU's memory was read or written.", samples,
            &GpuSample::memory_utilization),
      Gauge("sparsefw_gpu_temperature_celsius", "Temperature of the GPU.", samples,
            &GpuSample::temperature_celsius),
      Gauge("sparsefw_gpu_power_watts", "Power that the GPU draws.", samples,
            &GpuSample::power_watts),
  };
  std::erase_if(families, [](const auto& family) { return family.metric.empty(); });
  return families;
}

}  // namespace sparsefw::server
