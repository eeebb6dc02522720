// What happens to jobs, told to the metrics and the log.
#ifndef SPARSEFW_SERVER_APP_JOB_EVENTS_H_
#define SPARSEFW_SERVER_APP_JOB_EVENTS_H_

#include "server/app/logging.h"
#include "server/jobs/job_manager.h"
#include "server/metrics/metrics.h"

namespace sparsefw::server {

// Thread-safe.
class JobEvents final : public JobListener {
 public:
  JobEvents(Metrics* metrics, Logger* logger) : metrics_(metrics), logger_(logger) {}
  void OnAccepted(const Job& job) override;
  void OnStarted(const Job& job) override;
  void OnEnded(const Job& job) override;
  void OnBackgroundError(const Job& job, const absl::Status& error) override;

 private:
  Metrics* const metrics_;
  Logger* const logger_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_JOB_EVENTS_H_
