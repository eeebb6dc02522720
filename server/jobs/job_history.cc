#include "server/jobs/job_history.h"

#include <algorithm>
#include <iterator>

namespace sparsefw::server {
namespace {

// The job when it was in a state that it had before its end. What states that
// are not the last have in common: no result, no error, no end.
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

void RecordState(Job& job) { job.states.push_back({job.state, job.revision}); }

std::vector<JobVersion> VersionsAfter(const Job& job, int64_t after_revision) {
  const auto missed =
      std::find_if(job.states.begin(), job.states.end(),
                   [&](const StateChange& change) { return change.revision > after_revision; });
  // A first watch, or one that has missed nothing.
  if (missed == job.states.begin() || missed == job.states.end()) {
    return {{JobWatcher::Event::kSnapshot, job}};
  }
  std::vector<JobVersion> versions;
  const StateChange& seen = *std::prev(missed);
  versions.push_back(
      {JobWatcher::Event::kSnapshot, AsItWas(job, seen.state, seen.revision, after_revision)});
  for (auto change = missed; change != job.states.end(); ++change) {
    const bool newest = change->revision == job.revision;
    versions.push_back(
        {JobWatcher::Event::kStateChange,
         newest ? job : AsItWas(job, change->state, change->revision, change->revision)});
  }
  if (versions.back().job.revision < job.revision) {
    versions.push_back({JobWatcher::Event::kProgress, job});
  }
  return versions;
}

}  // namespace sparsefw::server
