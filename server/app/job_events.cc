#include "server/app/job_events.h"

#include <string>

#include "absl/strings/ascii.h"

namespace sparsefw::server {
namespace {

std::string StateName(const Job& job) {
  std::string name(NameOf(job.state));
  absl::AsciiStrToUpper(&name);
  return name;
}

}  // namespace

void JobEvents::OnAccepted(const Job& job) {
  metrics_->JobAccepted(job);
  logger_->Log(LogLevel::kInfo, "job_accepted",
               {{"job", job.name},
                {"pattern", ToString(job.spec.pattern)},
                {"rows", job.rows},
                {"cols", job.cols},
                {"priority", int64_t{job.spec.priority}}});
}

// Thousands may come at once; the start logs how many.
void JobEvents::OnRecovered(const Job& job) {
  metrics_->JobRecovered();
  logger_->Log(LogLevel::kDebug, "job_recovered",
               {{"job", job.name}, {"state", StateName(job)}, {"attempts", int64_t{job.attempts}}});
}

void JobEvents::OnInterrupted(const Job& job) {
  logger_->Log(LogLevel::kInfo, "job_interrupted", {{"job", job.name}});
}

void JobEvents::OnStarted(const Job& job) {
  metrics_->JobStarted(job);
  logger_->Log(
      LogLevel::kInfo, "job_started",
      {{"job", job.name},
       {"attempt", int64_t{job.attempts}},
       {"queue_s", absl::ToDoubleSeconds(job.start_time - job.create_time)}});
}

void JobEvents::OnEnded(const Job& job) {
  metrics_->JobEnded(job);
  if (!job.error.ok()) {
    logger_->Log(LogLevel::kWarning, "job_ended",
                 {{"job", job.name}, {"state", StateName(job)}, {"error", job.error.ToString()}});
    return;
  }
  const SolveSummary solve = job.result.has_value() ? job.result->solve : SolveSummary();
  logger_->Log(LogLevel::kInfo, "job_ended",
               {{"job", job.name},
                {"state", StateName(job)},
                {"iterations", solve.iterations},
                {"final_loss", solve.final_loss},
                {"relative_reduction", solve.relative_reduction},
                {"solve_s", absl::ToDoubleSeconds(solve.solve_time)}});
}

void JobEvents::OnDeviceLost(const std::string& device, const Job& job, const absl::Status& error) {
  logger_->Log(LogLevel::kError, "device_lost",
               {{"device", device}, {"job", job.name}, {"error", error.ToString()}});
  if (device_lost_) device_lost_();
}

void JobEvents::OnBackgroundError(const Job& job, const absl::Status& error) {
  logger_->Log(LogLevel::kError, "job_background_error",
               {{"job", job.name}, {"error", error.ToString()}});
}

}  // namespace sparsefw::server
