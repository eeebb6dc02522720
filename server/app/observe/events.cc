#include "server/app/observe/events.h"

#include <initializer_list>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "server/metrics/labels.h"
#include "server/net/descriptor.h"
#include "sparsefw/steady_time.h"

namespace sparsefw::server {
namespace {

constexpr absl::Duration kRefusalsPeriod = absl::Seconds(10);

using FieldList = std::vector<Logger::Field>;

// The fields by which the lines of a job are found and joined with those of the call
// that submitted it, also after a restart; then those of the event.
FieldList About(const Job& job, std::initializer_list<Logger::Field> event = {}) {
  FieldList fields = {{"job", job.name}, {"tenant", job.owner.tenant}};
  if (!job.request_id.empty()) fields.push_back({"request_id", job.request_id});
  if (!job.spec.traceparent.empty()) fields.push_back({"traceparent", job.spec.traceparent});
  fields.insert(fields.end(), event);
  return fields;
}

std::string StateName(const Job& job) {
  return absl::AsciiStrToUpper(std::string(NameOf(job.state)));
}

// The key of a name, so that one search for job=<name> finds calls and job events.
std::string_view KeyOf(std::string_view resource) {
  if (resource.starts_with("jobs/")) return "job";
  if (resource.starts_with("tensors/")) return "tensor";
  if (resource.starts_with("uploads/")) return "upload";
  return "name";  // that no resource can have
}

}  // namespace

void LogRpc(const RpcRecord& record, Logger* logger) {
  FieldList fields = {{"method", std::string(record.method)},
                      {"code", CodeName(record.status.code())},
                      {"ms", absl::ToDoubleMilliseconds(record.duration)},
                      {"peer", record.peer}};
  const auto add = [&fields](std::string_view key, std::string_view value) {
    if (!value.empty()) fields.push_back({key, std::string(value)});
  };
  add("tenant", record.tenant);
  add(KeyOf(record.subject.resource), record.subject.resource);
  add("request_id", record.subject.request_id);
  add("traceparent", record.traceparent);
  add("message", std::string(record.status.message()));
  const bool quiet = record.status.ok() || absl::IsCancelled(record.status);
  logger->Log(quiet ? LogLevel::kDebug : LogLevel::kInfo, "rpc", fields);
}

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

void JobEvents::OnAccepted(const Job& job) {
  metrics_->JobAccepted(job);
  live_->Accepted(job);
  logger_->Log(LogLevel::kInfo, "job_accepted",
               About(job, {{"pattern", ToString(job.spec.pattern)},
                           {"rows", job.rows},
                           {"cols", job.cols},
                           {"priority", int64_t{job.spec.priority}}}));
}

// Thousands may come at once; the start logs how many.
void JobEvents::OnRecovered(const Job& job) {
  metrics_->JobRecovered();
  live_->Accepted(job);
  logger_->Log(LogLevel::kDebug, "job_recovered",
               About(job, {{"state", StateName(job)}, {"attempts", int64_t{job.attempts}}}));
}

void JobEvents::OnInterrupted(const Job& job) {
  live_->Gone(job);
  logger_->Log(LogLevel::kInfo, "job_interrupted", About(job));
}

void JobEvents::OnStarted(const Job& job) {
  metrics_->JobStarted(job);
  live_->Started(job);
  logger_->Log(LogLevel::kInfo, "job_started",
               About(job, {{"attempt", int64_t{job.attempts}},
                           {"queue_s", absl::ToDoubleSeconds(job.start_time - job.create_time)}}));
}

void JobEvents::OnEnded(const Job& job) {
  metrics_->JobEnded(job);
  live_->Ended(job);
  LogEnd(job);
  if (ended_) ended_(job);
}

void JobEvents::LogEnd(const Job& job) {
  if (!job.error.ok()) {
    logger_->Log(LogLevel::kWarning, "job_ended",
                 About(job, {{"state", StateName(job)}, {"error", job.error.ToString()}}));
    return;
  }
  const SolveSummary solve = job.result.has_value() ? job.result->solve : SolveSummary();
  logger_->Log(LogLevel::kInfo, "job_ended",
               About(job, {{"state", StateName(job)},
                           {"iterations", solve.iterations},
                           {"shrinkage", job.spec.options.shrinkage},
                           {"final_loss", solve.final_loss},
                           {"relative_reduction", solve.relative_reduction},
                           {"solve_s", absl::ToDoubleSeconds(solve.solve_time)}}));
}

void JobEvents::OnDeviceLost(const std::string& device, const Job& job, const absl::Status& error) {
  logger_->Log(LogLevel::kError, "device_lost",
               About(job, {{"device", device}, {"error", error.ToString()}}));
  if (device_lost_) device_lost_();
}

void JobEvents::OnBackgroundError(const Job& job, const absl::Status& error) {
  metrics_->JobBackgroundError(error);
  logger_->Log(LogLevel::kError, "job_background_error", About(job, {{"error", error.ToString()}}));
}

}  // namespace sparsefw::server
