// Keeps the latest measurements of the GPUs.
#ifndef SPARSEFW_SERVER_METRICS_GPU_MONITOR_H_
#define SPARSEFW_SERVER_METRICS_GPU_MONITOR_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/jobs/clock.h"
#include "server/metrics/gpu_sample.h"

namespace sparsefw::server {

struct GpuMonitorOptions {
  // Called once; it and what it returns are called and let go of on the
  // monitor's thread, and may block there for ever.
  std::function<absl::StatusOr<GpuSampler>()> open;
  // Called when open failed, at most once, never after the monitor's end. Must be
  // quick and not call the monitor.
  std::function<void(const absl::Status&)> on_failure;
  absl::Duration period = absl::Seconds(5);    // from one measurement to the next; above 0
  absl::Duration patience = absl::Seconds(1);  // of the destructor
  Clock* clock = &RealClock();                 // lives as long as the program
};

// Measures on a thread of its own, so that a driver that hangs stops neither
// scrapes nor the server: measurements that are too old are left out, and a
// thread that does not end in time is left behind. Thread-safe.
class GpuMonitor {
 public:
  explicit GpuMonitor(GpuMonitorOptions options);
  // Waits for at most options.patience.
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // Empty before the first measurement, and when that is older than three
  // periods and a second. Never blocks.
  std::vector<GpuSample> Latest() const;

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  // Shared with the thread, which may outlive the monitor.
  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_METRICS_GPU_MONITOR_H_
