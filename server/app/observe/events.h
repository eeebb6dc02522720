// What goes to the log, the metrics and the status page: calls that end, connections that are
// refused, the life of jobs.
#ifndef SPARSEFW_SERVER_APP_OBSERVE_EVENTS_H_
#define SPARSEFW_SERVER_APP_OBSERVE_EVENTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "server/app/observe/logging.h"
#include "server/jobs/job_listener.h"
#include "server/metrics/metrics.h"
#include "server/rpc/runtime/rpc_context.h"
#include "server/status/live_jobs.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Event `rpc`: method, code, ms, peer; tenant, job (or tensor, upload), request_id,
// traceparent and message where there is one. Level info for errors, debug for calls
// that succeed or that the client gives up.
void LogRpc(const RpcRecord& record, Logger* logger);

// Refused connections. Thread-safe. Metrics and logger outlive it.
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

// Counts and logs the life of jobs, and tells the status page of it. Thread-safe.
class JobEvents final : public JobListener {
 public:
  // `device_lost` is called after the loss was logged, `ended` after an end was.
  JobEvents(Metrics* metrics, Logger* logger, LiveJobs* live,
            std::function<void()> device_lost = {}, std::function<void(const Job&)> ended = {})
      : metrics_(metrics),
        logger_(logger),
        live_(live),
        device_lost_(std::move(device_lost)),
        ended_(std::move(ended)) {}
  void OnAccepted(const Job& job) override;
  void OnRecovered(const Job& job) override;
  void OnStarted(const Job& job) override;
  void OnProgress(const Job& job, const ProgressReport& progress) override {
    live_->Progressed(job.name, progress);
  }
  void OnInterrupted(const Job& job) override;
  void OnEnded(const Job& job) override;
  void OnDeviceLost(const std::string& device, const Job& job, const absl::Status& error) override;
  void OnBackgroundError(const Job& job, const absl::Status& error) override;

 private:
  void LogEnd(const Job& job);

  Metrics* const metrics_;
  Logger* const logger_;
  LiveJobs* const live_;
  const std::function<void()> device_lost_;
  const std::function<void(const Job&)> ended_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_OBSERVE_EVENTS_H_
