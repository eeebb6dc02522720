// Counts and logs the life of jobs.
#ifndef SPARSEFW_SERVER_APP_JOB_EVENTS_H_
#define SPARSEFW_SERVER_APP_JOB_EVENTS_H_

#include "server/app/logging.h"
#include "server/jobs/job_listener.h"
#include "server/metrics/metrics.h"

namespace sparsefw::server {

// Thread-safe.
class JobEvents final : public JobListener {
 public:
  // `device_lost` is called after the loss was logged.
  JobEvents(Metrics* metrics, Logger* logger, std::function<void()> device_lost = {})
      : metrics_(metrics), logger_(logger), device_lost_(std::move(device_lost)) {}
  void OnAccepted(const Job& job) override;
  void OnRecovered(const Job& job) override;
  void OnStarted(const Job& job) override;
  void OnInterrupted(const Job& job) override;
  void OnEnded(const Job& job) override;
  void OnDeviceLost(const std::string& device, const Job& job, const absl::Status& error) override;
  void OnBackgroundError(const Job& job, const absl::Status& error) override;

 private:
  Metrics* const metrics_;
  Logger* const logger_;
  const std::function<void()> device_lost_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_JOB_EVENTS_H_
