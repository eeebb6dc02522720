#include "server/jobs/scheduling/run_times.h"

#include <algorithm>

namespace sparsefw::server {

double RunTimes::Estimate(double cost, bool on_device) const {
  return std::clamp(cost * (on_device ? device_ : cpu_), 0.0, kMostSeconds);
}

void RunTimes::Measured(double cost, bool on_device, double seconds) {
  if (!(cost > 0) || !(seconds > 0)) return;
  double& speed = on_device ? device_ : cpu_;
  speed += (seconds / cost - speed) / 8;
}

}  // namespace sparsefw::server
