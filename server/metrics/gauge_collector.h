// Gauges that are computed when somebody scrapes.
#ifndef SPARSEFW_SERVER_METRICS_GAUGE_COLLECTOR_H_
#define SPARSEFW_SERVER_METRICS_GAUGE_COLLECTOR_H_

#include <functional>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "server/metrics/gauges.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Thread-safe. Counting up and down would drift with the first missed case;
// these are what the parts say they hold.
class GaugeCollector final : public prometheus::Collectable {
 public:
  void Set(std::function<Gauges()> compute);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  mutable Mutex mutex_;
  std::function<Gauges()> compute_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_GAUGE_COLLECTOR_H_
