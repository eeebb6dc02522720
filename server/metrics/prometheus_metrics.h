// Metrics in Prometheus' form: docs/metrics.md lists them. All names begin with sparsefw_; base
// units. Every label has a fixed set of values, and what is not in it counts as "other", a code as
// "UNKNOWN". Gauges are computed at each scrape and absent before SetGauges.
#ifndef SPARSEFW_SERVER_METRICS_PROMETHEUS_METRICS_H_
#define SPARSEFW_SERVER_METRICS_PROMETHEUS_METRICS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/metrics/metrics.h"

namespace prometheus {
class Collectable;
}  // namespace prometheus

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

class PrometheusMetrics : public Metrics {
 public:
  // The metrics that an endpoint serves.
  virtual std::vector<std::shared_ptr<prometheus::Collectable>> collectables() const = 0;
};

std::unique_ptr<PrometheusMetrics> NewPrometheusMetrics(const BuildInfo& build,
                                                        const std::vector<DeviceInfo>& devices,
                                                        absl::Time start_time);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_PROMETHEUS_METRICS_H_
