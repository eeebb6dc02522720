// Counts and logs the life of jobs, and tells the status page of it.
#ifndef SPARSEFW_SERVER_APP_OBSERVE_JOB_EVENTS_H_
#define SPARSEFW_SERVER_APP_OBSERVE_JOB_EVENTS_H_

#include "server/app/observe/logging.h"
#include "server/jobs/job_listener.h"
#include "server/metrics/metrics.h"
#include "server/status/live_jobs.h"

namespace sparsefw::server {

// Thread-safe.
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

#endif  // SPARSEFW_SERVER_APP_OBSERVE_JOB_EVENTS_H_
