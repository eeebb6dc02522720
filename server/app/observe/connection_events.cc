#include "server/app/observe/connection_events.h"

#include <utility>

#include "server/net/descriptor_limit.h"
#include "sparsefw/steady_time.h"

namespace sparsefw::server {
namespace {

constexpr absl::Duration kRefusalsPeriod = absl::Seconds(10);

}  // namespace

void ConnectionEvents::OnRefused() {
  metrics_->ConnectionRefused();
  const absl::Time now = SteadyNow();
  int64_t refused = 0;
  {
    MutexLock lock(mutex_);
    ++refused_;
    if (now < next_log_) return;
    next_log_ = now + kRefusalsPeriod;
    refused = std::exchange(refused_, 0);
  }
  logger_->Log(LogLevel::kWarning, "connections_refused",
               {{"reason",
                 "too few file descriptors are left, or --max-connections or "
                 "--max-peer-connections is reached"},
                {"refused", refused},
                {"open_descriptors", OpenDescriptors()},
                {"max_descriptors", DescriptorLimit()}});
}

}  // namespace sparsefw::server
