#include "server/jobs/lifecycle/active_job.h"

#include "server/jobs/lifecycle/job_history.h"

namespace sparsefw::server {

Job ActiveJob::Now() const {
  Job now = *job;
  if (progress.has_value()) {
    now.progress = progress->report;
    now.revision = progress->revision;
  }
  return now;
}

void ActiveJob::ReadProgress(Job* read) {
  MutexLock lock(mutex);
  if (!progress.has_value() || progress->revision <= read->revision) return;
  read->progress = progress->report;
  read->revision = progress->revision;
}

void ActiveJob::Replace(std::shared_ptr<const Job> next) {
  job = std::move(next);
  progress.reset();
  stored_revision = job->revision;
}

std::optional<JobEvent> ActiveJob::TakeReport() {
  std::optional<ProgressReport> taken;
  {
    MutexLock lock(report_mutex);
    taken.swap(report);
  }
  const bool runs = job->state == JobState::kRunning && unstored_end == nullptr;
  // A restart could not tell later revisions from those that it gives out itself.
  const bool known = revision() + 1 < stored_revision + kMostRevisionsLost;
  if (!taken.has_value() || !runs || !known) return std::nullopt;
  progress = JobProgress{*taken, revision() + 1};
  return JobEvent{JobEvent::Kind::kProgress, job, progress};
}

}  // namespace sparsefw::server
