// Connections that are refused, for metrics and log.
#ifndef SPARSEFW_SERVER_APP_OBSERVE_CONNECTION_EVENTS_H_
#define SPARSEFW_SERVER_APP_OBSERVE_CONNECTION_EVENTS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "server/app/observe/logging.h"
#include "server/metrics/metrics.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Thread-safe. Metrics and logger outlive it.
class ConnectionEvents {
 public:
  ConnectionEvents(Metrics* metrics, Logger* logger) : metrics_(metrics), logger_(logger) {}
  // No file descriptors are left for one, or a limit of connections is reached. Logged at
  // most once in ten seconds.
  void OnRefused();

 private:
  Metrics* const metrics_;
  Logger* const logger_;
  Mutex mutex_;
  absl::Time next_log_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;  // since the last line
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_OBSERVE_CONNECTION_EVENTS_H_
