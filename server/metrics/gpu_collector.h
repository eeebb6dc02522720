// Gauges of the GPUs, as last measured.
#ifndef SPARSEFW_SERVER_METRICS_GPU_COLLECTOR_H_
#define SPARSEFW_SERVER_METRICS_GPU_COLLECTOR_H_

#include <functional>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "server/metrics/gpu_sample.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Thread-safe. Families without a value are left out.
class GpuCollector final : public prometheus::Collectable {
 public:
  // `latest` does not block.
  void Set(std::function<std::vector<GpuSample>()> latest);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  mutable Mutex mutex_;
  std::function<std::vector<GpuSample>()> latest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_GPU_COLLECTOR_H_
