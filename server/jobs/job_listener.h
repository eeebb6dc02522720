// Receives the life of every job, for metrics and logs.
#ifndef SPARSEFW_SERVER_JOBS_JOB_LISTENER_H_
#define SPARSEFW_SERVER_JOBS_JOB_LISTENER_H_

#include <string>

#include "absl/status/status.h"
#include "server/jobs/job.h"

namespace sparsefw::server {

// OnAccepted, OnStarted and OnEnded of one job come in that order and one at a
// time. A job of an earlier process begins with OnRecovered instead, and OnEnded
// follows at once where it cannot go on. OnInterrupted is the last call of a job
// that a later process runs again. All methods are called without locks held; implementations must
// be thread-safe and quick.
class JobListener {
 public:
  virtual ~JobListener() = default;
  virtual void OnAccepted(const Job& job) = 0;
  virtual void OnRecovered(const Job& job) = 0;
  virtual void OnStarted(const Job& job) = 0;
  // Progress of a job that has started. The newest of reports that follow each other quickly comes
  // alone; the last may come after the end.
  virtual void OnProgress(const Job& /*job*/, const ProgressReport& /*progress*/) {}
  virtual void OnInterrupted(const Job& job) = 0;
  virtual void OnEnded(const Job& job) = 0;
  // No more jobs start on the device; `job` was the first to fail on it.
  virtual void OnDeviceLost(const std::string& device, const Job& job,
                            const absl::Status& error) = 0;
  // An error that has no caller to return to: a start that is tried again, progress that could not
  // be stored, an end that is kept back until it can be, an expired job that could not be removed.
  virtual void OnBackgroundError(const Job& job, const absl::Status& error) = 0;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_JOB_LISTENER_H_
