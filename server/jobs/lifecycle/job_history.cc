#include "server/jobs/lifecycle/job_history.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

// A bound for a job that restart after restart interrupts.
constexpr size_t kMostStates = 64;

// The job in an earlier state: without result, error and end.
Job AsItWas(const Job& job, JobState state, int64_t state_revision, int64_t revision) {
  Job past = job;
  past.state = state;
  past.state_revision = state_revision;
  past.revision = revision;
  past.progress.reset();
  past.result.reset();
  past.error = absl::OkStatus();
  past.queue_position = 0;
  past.end_time = absl::InfinitePast();
  past.expire_time = absl::InfiniteFuture();
  if (state == JobState::kQueued) past.start_time = absl::InfinitePast();
  return past;
}

}  // namespace

void ChangeState(Job& job, JobState state, int64_t revision) {
  job.state = state;
  job.revision = revision;
  job.state_revision = revision;
  job.states.push_back({state, revision});
  if (job.states.size() > kMostStates) job.states.erase(job.states.begin());
}

void ReturnToQueue(Job& job, int64_t revision) {
  job.progress.reset();
  job.start_time = absl::InfinitePast();
  ChangeState(job, JobState::kQueued, revision);
}

Job AsAccepted(const Job& job) {
  const int64_t revision = job.states.front().revision;
  return AsItWas(job, JobState::kQueued, revision, revision);
}

absl::StatusOr<std::vector<JobEvent>> EventsAfter(const Job& job, int64_t after_revision) {
  const bool forgotten = job.states.size() == kMostStates && after_revision > 0 &&
                         after_revision < job.states.front().revision;
  if (after_revision > job.revision || forgotten) {
    return Refuse(absl::StatusCode::kOutOfRange, "REVISION_UNKNOWN",
                  "after_revision must be a revision that %s had; got %d, and it is at %d now. "
                  "Read the job anew",
                  job.name, after_revision, job.revision);
  }
  const auto event = [](JobEvent::Kind kind, Job version) {
    return JobEvent{kind, std::make_shared<const Job>(std::move(version))};
  };
  const auto missed =
      std::find_if(job.states.begin(), job.states.end(),
                   [&](const StateChange& change) { return change.revision > after_revision; });
  // A first watch, or one that has missed nothing.
  if (missed == job.states.begin() || missed == job.states.end()) {
    return std::vector<JobEvent>{event(JobEvent::Kind::kSnapshot, job)};
  }
  const StateChange& seen = *std::prev(missed);
  std::vector<JobEvent> events = {
      event(JobEvent::Kind::kSnapshot, AsItWas(job, seen.state, seen.revision, after_revision))};
  for (auto change = missed; change != job.states.end(); ++change) {
    const bool newest = change->revision == job.revision;
    events.push_back(
        event(JobEvent::Kind::kStateChange,
              newest ? job : AsItWas(job, change->state, change->revision, change->revision)));
  }
  if (events.back().revision() < job.revision && job.progress.has_value()) {
    events.push_back({JobEvent::Kind::kProgress, std::make_shared<const Job>(job),
                      JobProgress{*job.progress, job.revision}});
  }
  return events;
}

}  // namespace sparsefw::server
