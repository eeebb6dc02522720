#include "server/jobs/submission/submission.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "server/identity/random_hex.h"
#include "server/jobs/lifecycle/job_history.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr int kMaxPriority = 100;

Job NewJob(const JobSpec& spec, const Owner& owner, const JobRunner::Inputs& inputs,
           absl::Time now) {
  Job job;
  job.spec = spec;
  job.owner = owner;
  job.rows = inputs.rows;
  job.cols = inputs.cols;
  job.create_time = now;
  return job;
}

}  // namespace

absl::Status DrainingError() {
  return RefuseForNow(absl::StatusCode::kUnavailable, "DRAINING",
                      "the server is draining and takes no new work; try another one");
}

Submission::Submission(SubmissionLimits limits, LimitsOfTenant limits_of, const JobParts& parts,
                       StateMachine& states, FindJob find)
    : limits_(std::move(limits)),
      limits_of_(std::move(limits_of)),
      parts_(parts),
      states_(states),
      find_(std::move(find)) {}

absl::Status Submission::CheckRanges(const JobSpec& spec, std::string_view tenant) const {
  if (spec.priority < -kMaxPriority || spec.priority > kMaxPriority) {
    return Invalid("OPTION_INVALID", "priority must be in [-%d, %d]; got priority=%d", kMaxPriority,
                   kMaxPriority, spec.priority);
  }
  const int most = LimitsFor(limits_of_, tenant).priority_max;
  if (spec.priority > most) {
    return Refuse(absl::StatusCode::kPermissionDenied, "PRIORITY_NOT_ALLOWED",
                  "priority must be at most %d for tenant %s; got %d", most, tenant, spec.priority);
  }
  if (spec.deadline <= absl::ZeroDuration()) {
    return Invalid("OPTION_INVALID", "deadline must be above 0; got deadline=%s",
                   absl::FormatDuration(spec.deadline));
  }
  if (spec.result_ttl <= absl::ZeroDuration()) {
    return Invalid("OPTION_INVALID", "result_ttl must be above 0; got result_ttl=%s",
                   absl::FormatDuration(spec.result_ttl));
  }
  if (spec.result_ttl > limits_.max_result_ttl) {
    return Invalid("OPTION_INVALID",
                   "result_ttl must be at most --max-result-ttl of this server, %s; got "
                   "result_ttl=%s",
                   absl::FormatDuration(limits_.max_result_ttl),
                   absl::FormatDuration(spec.result_ttl));
  }
  return absl::OkStatus();
}

JobRoom Submission::RoomOf(const std::string& tenant) const {
  JobRoom room{LimitsFor(limits_of_, tenant).max_job_bytes, limits_.max_job_bytes};
  if (limits_.disk_room) room.disk_bytes = limits_.disk_room();
  return room;
}

absl::StatusOr<Job> Submission::Validate(const JobSpec& spec, const Owner& owner) {
  SPARSEFW_RETURN_IF_ERROR(CheckRanges(spec, owner.tenant));
  SPARSEFW_ASSIGN_OR_RETURN(const auto inputs,
                            PrepareInputs(parts_, spec, owner, JobRunner::Values::kUnchecked));
  return NewJob(spec, owner, *inputs, parts_.clock.Now());
}

absl::StatusOr<Job> Submission::Submit(const JobSpec& spec, std::string_view request_id,
                                       const RequestDigest& digest, const Owner& owner) {
  const Request request{owner.tenant, std::string(request_id)};
  ClaimRequest(request);
  const absl::Cleanup release_request = [&] { ReleaseRequest(request); };
  // Before anything can refuse it: a repeated request is answered even when
  // the queue is full, the server drains or limits are lower by now.
  SPARSEFW_ASSIGN_OR_RETURN(const std::optional<Job> earlier, FindEarlier(request, digest));
  if (earlier) return *earlier;

  SPARSEFW_RETURN_IF_ERROR(CheckRanges(spec, owner.tenant));
  SPARSEFW_RETURN_IF_ERROR(ReserveSlot(owner.tenant));
  const absl::Cleanup release_slot = [&] { ReleaseSlot(owner.tenant); };
  SPARSEFW_ASSIGN_OR_RETURN(auto inputs,
                            PrepareInputs(parts_, spec, owner, JobRunner::Values::kUnchecked));
  Job job = NewJob(spec, owner, *inputs, parts_.clock.Now());
  job.deadline = job.create_time + spec.deadline;
  job.request_id = request.id;
  ChangeState(job, JobState::kQueued, 1);
  {
    MutexLock lock(mutex_);
    if (!accepting_) return DrainingError();
  }
  SPARSEFW_ASSIGN_OR_RETURN(const std::string id, RandomHex(8));
  job.name = "jobs/" + id;
  const auto active =
      std::make_shared<ActiveJob>(std::make_shared<const Job>(std::move(job)), std::move(inputs),
                                  parts_.clock.SteadyNow() + spec.deadline);
  SPARSEFW_RETURN_IF_ERROR(states_.Accept(active, request.id, digest.now, RoomOf(owner.tenant)));
  Job accepted = *active->Current();
  if (accepted.state == JobState::kQueued) {
    accepted.queue_position = parts_.scheduler.Position(accepted.name);
  }
  return accepted;
}

absl::Status Submission::Check(const JobSpec& spec, const InputSpecs& inputs,
                               std::string_view tenant) {
  SPARSEFW_RETURN_IF_ERROR(CheckRanges(spec, tenant));
  return Guarded("validating the job", [&]() -> absl::Status {
    SPARSEFW_ASSIGN_OR_RETURN(const DeviceNeed need, parts_.runner.Check(spec, inputs));
    return parts_.scheduler.CheckPossible(need);
  });
}

void Submission::StopAccepting() {
  MutexLock lock(mutex_);
  accepting_ = false;
}

// One submission at a time for one request id: the second waits, then finds
// the job of the first, or takes its place when the first was refused.
void Submission::ClaimRequest(const Request& request) {
  if (request.id.empty()) return;
  MutexLock lock(mutex_);
  while (!claimed_requests_.insert(request).second) claims_.Wait(mutex_);
}

void Submission::ReleaseRequest(const Request& request) {
  if (request.id.empty()) return;
  MutexLock lock(mutex_);
  claimed_requests_.erase(request);
  claims_.NotifyAll();
}

absl::StatusOr<std::optional<Job>> Submission::FindEarlier(const Request& request,
                                                           const RequestDigest& digest) {
  if (request.id.empty()) return std::nullopt;
  SPARSEFW_ASSIGN_OR_RETURN(const std::optional<JobStore::RequestRecord> record,
                            parts_.store.FindRequest(request.tenant, request.id));
  if (!record) return std::nullopt;
  if (record->fingerprint != digest.now && record->fingerprint != digest.before) {
    return Invalid("REQUEST_ID_REUSED",
                   "request_id \"%s\" was used for %s with another request body", request.id,
                   record->job);
  }
  absl::StatusOr<Job> job = find_(record->job);
  // Deleted since we looked, and its request id with it.
  if (absl::IsNotFound(job.status())) return std::nullopt;
  if (!job.ok()) return job.status();
  return *std::move(job);
}

// A job leaves its slot after it is in the queue: none is missed by the sum.
absl::Status Submission::ReserveSlot(const std::string& tenant) {
  const std::optional<int64_t> most = LimitsFor(limits_of_, tenant).max_queued_jobs;
  MutexLock lock(mutex_);
  if (!accepting_) return DrainingError();
  if (most.has_value()) {
    const auto submitting = submitting_.find(tenant);
    const int64_t queued = parts_.scheduler.queued_of(tenant) +
                           (submitting == submitting_.end() ? 0 : submitting->second);
    if (queued >= *most) {
      return QuotaExceeded("QUOTA_QUEUED_JOBS", "max-queued-jobs", *most, queued, *most > 0,
                           absl::StrFormat("queued jobs of tenant %s must be at most "
                                           "max-queued-jobs of %d; there are %d",
                                           tenant, *most, queued));
    }
  }
  if (parts_.table.submissions() + parts_.scheduler.queued() >= limits_.max_queued_jobs) {
    return RefuseForNow(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                        "the queue is full: at most %d jobs may wait; try again later",
                        limits_.max_queued_jobs);
  }
  ++submitting_[tenant];
  parts_.table.BeginSubmission();
  return absl::OkStatus();
}

void Submission::ReleaseSlot(const std::string& tenant) {
  {
    MutexLock lock(mutex_);
    const auto submitting = submitting_.find(tenant);
    if (--submitting->second == 0) submitting_.erase(submitting);
  }
  parts_.table.EndSubmission();
}

}  // namespace sparsefw::server
