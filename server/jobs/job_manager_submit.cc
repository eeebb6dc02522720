// From a spec to a queued job.
#include <exception>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "server/jobs/job_history.h"
#include "server/jobs/job_manager_impl.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

constexpr int kMaxPriority = 100;
// A place in the queue may be free soon; a server that drains does not come
// back, its successor takes longer to start.
constexpr const char* kQueueFullRetryMs = "1000";
constexpr const char* kDrainingRetryMs = "5000";

absl::Status OutOfRange(const std::string& message) {
  return WithReason(absl::InvalidArgumentError(message), "OPTION_INVALID");
}

absl::Status CheckRanges(const JobSpec& spec) {
  if (spec.priority < -kMaxPriority || spec.priority > kMaxPriority) {
    return OutOfRange(absl::StrFormat("priority must be in [-%d, %d]; got priority=%d",
                                      kMaxPriority, kMaxPriority, spec.priority));
  }
  if (spec.deadline <= absl::ZeroDuration()) {
    return OutOfRange(absl::StrFormat("deadline must be above 0; got deadline=%s",
                                      absl::FormatDuration(spec.deadline)));
  }
  if (spec.result_ttl <= absl::ZeroDuration()) {
    return OutOfRange(absl::StrFormat("result_ttl must be above 0; got result_ttl=%s",
                                      absl::FormatDuration(spec.result_ttl)));
  }
  return absl::OkStatus();
}

// What a runner throws must not reach gRPC.
template <typename Work>
absl::Status Guarded(const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrFormat("validating the job failed: %s", error.what()));
  } catch (...) {
    return absl::InternalError("validating the job failed with an unknown exception");
  }
}

absl::Status Draining() {
  return WithReason(
      absl::UnavailableError("the server is shutting down and accepts no more jobs; try again"),
      "DRAINING", {{"retry_delay_ms", kDrainingRetryMs}});
}

}  // namespace

absl::StatusOr<Job> JobManagerImpl::Submit(const JobSpec& spec, std::string_view request_id,
                                           std::string_view fingerprint, std::string_view owner,
                                           bool validate_only) {
  SPARSEFW_RETURN_IF_ERROR(CheckRanges(spec));
  Job job;
  job.spec = spec;
  job.owner = std::string(owner);
  if (validate_only) {
    SPARSEFW_ASSIGN_OR_RETURN(const auto inputs, Prepare(spec));
    job.rows = inputs->rows;
    job.cols = inputs->cols;
    job.create_time = clock_.Now();
    return job;
  }
  const std::string request(request_id);
  ClaimRequest(request);
  const absl::Cleanup release_request = [&] { ReleaseRequest(request); };
  // Before anything can refuse it: a repeated request is answered even when
  // the queue is full or the server drains.
  SPARSEFW_ASSIGN_OR_RETURN(const std::optional<Job> earlier, FindEarlier(request, fingerprint));
  if (earlier) return *earlier;

  SPARSEFW_RETURN_IF_ERROR(ReserveSlot());
  const absl::Cleanup release_slot = [&] { ReleaseSlot(); };
  SPARSEFW_ASSIGN_OR_RETURN(auto inputs, Prepare(spec));
  job.rows = inputs->rows;
  job.cols = inputs->cols;
  return Accept(std::move(job), std::move(inputs), request, fingerprint);
}

absl::Status JobManagerImpl::Check(const JobSpec& spec, const InputSpecs& inputs) {
  SPARSEFW_RETURN_IF_ERROR(CheckRanges(spec));
  return Guarded([&]() -> absl::Status {
    SPARSEFW_ASSIGN_OR_RETURN(const DeviceNeed need, runner_.Check(spec, inputs));
    return CheckPossible(need);
  });
}

// One submission at a time for one request id: the second waits, then finds
// the job of the first, or takes its place when the first was refused.
void JobManagerImpl::ClaimRequest(const std::string& request_id) {
  if (request_id.empty()) return;
  MutexLock lock(mutex_);
  while (!claimed_requests_.insert(request_id).second) claims_.Wait(mutex_);
}

void JobManagerImpl::ReleaseRequest(const std::string& request_id) {
  if (request_id.empty()) return;
  MutexLock lock(mutex_);
  claimed_requests_.erase(request_id);
  claims_.NotifyAll();
}

absl::StatusOr<std::optional<Job>> JobManagerImpl::FindEarlier(std::string_view request_id,
                                                               std::string_view fingerprint) {
  if (request_id.empty()) return std::nullopt;
  const std::optional<JobStore::RequestRecord> record = store_.FindRequest(request_id);
  if (!record) return std::nullopt;
  if (record->fingerprint != fingerprint) {
    return WithReason(absl::InvalidArgumentError(absl::StrFormat(
                          "request_id \"%s\" was used for %s with another request body", request_id,
                          record->job)),
                      "REQUEST_ID_REUSED");
  }
  absl::StatusOr<Job> job = Get(record->job);
  // Deleted since we looked, and its request id with it.
  if (absl::IsNotFound(job.status())) return std::nullopt;
  if (!job.ok()) return job.status();
  return *std::move(job);
}

absl::Status JobManagerImpl::ReserveSlot() {
  MutexLock lock(mutex_);
  if (!accepting_) return Draining();
  if (static_cast<int64_t>(queue_.size()) + slots_ >= options_.max_queued_jobs) {
    return WithReason(absl::ResourceExhaustedError(absl::StrFormat(
                          "the queue is full: at most %d jobs may wait; try again later",
                          options_.max_queued_jobs)),
                      "QUEUE_FULL", {{"retry_delay_ms", kQueueFullRetryMs}});
  }
  ++slots_;
  return absl::OkStatus();
}

void JobManagerImpl::ReleaseSlot() {
  MutexLock lock(mutex_);
  --slots_;
  progress_.NotifyAll();
}

absl::StatusOr<std::shared_ptr<JobRunner::Inputs>> JobManagerImpl::Prepare(const JobSpec& spec) {
  std::shared_ptr<JobRunner::Inputs> inputs;
  SPARSEFW_RETURN_IF_ERROR(Guarded([&]() -> absl::Status {
    SPARSEFW_ASSIGN_OR_RETURN(inputs, runner_.Prepare(spec));
    if (inputs == nullptr) return absl::InternalError("validating the job gave no inputs");
    return CheckPossible(inputs->device_need);
  }));
  return inputs;
}

absl::StatusOr<Job> JobManagerImpl::Accept(Job job, std::shared_ptr<JobRunner::Inputs> inputs,
                                           std::string_view request_id,
                                           std::string_view fingerprint) {
  job.create_time = clock_.Now();
  job.spec.options.deadline = job.create_time + job.spec.deadline;
  job.revision = 1;
  job.state_revision = 1;
  RecordState(job);
  auto listener = std::make_shared<EventChannel>(listener_adapter_);
  ActiveJobPtr active;
  std::shared_ptr<const Job> first;
  {
    MutexLock lock(mutex_);
    if (!accepting_) return Draining();
    job.name = NewName();
    first = std::make_shared<const Job>(std::move(job));
    active = std::make_shared<ActiveJob>(first, std::move(inputs), listener);
    // Before it is stored: whoever finds it in a list can watch it.
    active_.emplace(first->name, active);
  }
  listener->Push(JobWatcher::Event::kSnapshot, first);
  const absl::Status stored = store_.Insert(*first, request_id, fingerprint);
  if (!stored.ok()) {
    MutexLock lock(mutex_);
    active_.erase(first->name);
    progress_.NotifyAll();
    return stored;
  }
  listener->Open();
  Enqueue(active);
  MutexLock lock(active->mutex);
  return WithPosition(*active->job);
}

void JobManagerImpl::Enqueue(const ActiveJobPtr& active) {
  absl::Status possible;
  {
    MutexLock job_lock(active->mutex);
    if (active->job->state != JobState::kQueued) return;  // cancelled as soon as it was listed
    MutexLock lock(mutex_);
    possible = pool_.CheckPossible(active->need.device);
    if (possible.ok()) {
      queue_.Push(active->name, active->job->spec.priority, active->deadline, active);
      pool_.Ref(active->need.device);
      work_.NotifyOne();
      if (queue_.next_deadline() == active->deadline) deadline_.NotifyOne();
      progress_.NotifyAll();
    }
  }
  // A device was lost since the job was found possible.
  if (!possible.ok()) {
    End(active, JobState::kQueued, {JobState::kFailed, std::move(possible), std::nullopt});
  }
}

std::string JobManagerImpl::NewName() { return absl::StrFormat("jobs/%016x", random_()); }

}  // namespace sparsefw::server
