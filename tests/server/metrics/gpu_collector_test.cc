#include "server/metrics/gpu_collector.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "server/metrics/prometheus_metrics.h"

namespace sparsefw::server {
namespace {

// The lines with values.
std::string Lines(const std::vector<prometheus::MetricFamily>& families) {
  std::string lines;
  std::string rest = prometheus::TextSerializer().Serialize(families);
  while (!rest.empty()) {
    const size_t end = rest.find('\n') + 1;
    if (rest[0] != '#') lines += rest.substr(0, end);
    rest.erase(0, end);
  }
  return lines;
}

TEST(GpuCollectorTest, ExportsWhatIsKnown) {
  GpuSample full;
  full.device = "cuda:0";
  full.memory = {.used_bytes = 2'000'000, .total_bytes = 8'000'000};
  full.utilization = 0.25;
  full.memory_utilization = 0.5;
  full.temperature_celsius = 61;
  full.power_watts = 123.5;
  GpuSample cold;
  cold.device = "cuda:1";
  cold.temperature_celsius = 0;
  GpuCollector collector;
  collector.Set([&] { return std::vector<GpuSample>{full, cold}; });
  EXPECT_EQ(Lines(collector.Collect()),
            "sparsefw_gpu_memory_used_bytes{device=\"cuda:0\"} 2000000\n"
            "sparsefw_gpu_memory_capacity_bytes{device=\"cuda:0\"} 8000000\n"
            "sparsefw_gpu_utilization_ratio{device=\"cuda:0\"} 0.25\n"
            "sparsefw_gpu_memory_utilization_ratio{device=\"cuda:0\"} 0.5\n"
            "sparsefw_gpu_temperature_celsius{device=\"cuda:0\"} 61\n"
            "sparsefw_gpu_temperature_celsius{device=\"cuda:1\"} 0\n"
            "sparsefw_gpu_power_watts{device=\"cuda:0\"} 123.5\n");
}

TEST(GpuCollectorTest, WithoutValuesThereAreNoFamilies) {
  GpuCollector collector;
  EXPECT_TRUE(collector.Collect().empty());
  collector.Set([] { return std::vector<GpuSample>(); });
  EXPECT_TRUE(collector.Collect().empty());
  collector.Set([] { return std::vector<GpuSample>{{.device = "cuda:0"}}; });
  EXPECT_TRUE(collector.Collect().empty());
}

TEST(GpuCollectorTest, IsServedWithTheOtherMetrics) {
  const auto metrics = NewPrometheusMetrics({"1.2.3", "gcc", "Release"}, {}, absl::UnixEpoch());
  GpuSample sample;
  sample.device = "cuda:7";
  sample.power_watts = 9;
  metrics->SetGpus([&] { return std::vector<GpuSample>{sample}; });
  std::string lines;
  for (const auto& collectable : metrics->collectables()) lines += Lines(collectable->Collect());
  EXPECT_NE(lines.find("sparsefw_gpu_power_watts{device=\"cuda:7\"} 9\n"), std::string::npos);
}

}  // namespace
}  // namespace sparsefw::server
