#include "server/jobs/lifecycle/state_machine.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "server/jobs/lifecycle/job_history.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {

absl::Status StateMachine::Accept(const JobPtr& job, std::string_view request_id,
                                  std::string_view fingerprint) {
  // Before it is stored: a client that finds it in a list can watch it.
  parts_.table.Add(job);
  const absl::Status stored = parts_.store.Insert(*job->Current(), request_id, fingerprint);
  if (!stored.ok()) {
    parts_.table.Remove(job->name);
    return stored;
  }
  Announce(*job);
  absl::Status queued;
  {
    MutexLock lock(job->mutex);
    if (job->job->state != JobState::kQueued) return absl::OkStatus();  // cancelled meanwhile
    queued = parts_.scheduler.Enqueue(job);
  }
  // A device was lost since the job was found possible.
  if (!queued.ok()) {
    End(job, JobState::kQueued, {JobState::kFailed, std::move(queued), std::nullopt});
  }
  return absl::OkStatus();
}

// A job that was cancelled as soon as it was stored may have ended already.
void StateMachine::Announce(ActiveJob& job) {
  parts_.listener.OnAccepted(AsAccepted(*job.Current()));
  std::shared_ptr<const Job> ended;
  {
    MutexLock lock(job.mutex);
    job.announced = true;
    if (IsTerminal(job.job->state)) ended = job.job;
  }
  if (ended != nullptr) parts_.listener.OnEnded(*ended);
}

std::optional<StateMachine::Started> StateMachine::Start(const JobPtr& job) {
  std::optional<Ending> refused;
  Started started;
  {
    MutexLock lock(job->mutex);
    if (job->job->state != JobState::kQueued) return std::nullopt;
    Job next = *job->job;
    next.state = JobState::kRunning;
    next.start_time = parts_.clock.Now();
    if (job->deadline <= next.start_time) {
      refused = DeadlinePassed(next);
    } else if (absl::Status stored = Commit(*job, std::move(next)); !stored.ok()) {
      refused = Ending{JobState::kFailed, std::move(stored), std::nullopt};
    } else {
      parts_.table.CountRunning();
      started = {job->job, std::move(job->inputs)};
    }
  }
  if (refused) {
    End(job, JobState::kQueued, *std::move(refused));
    return std::nullopt;
  }
  parts_.listener.OnStarted(*started.job);
  TellWatchers(*job, {JobEvent::Kind::kStateChange, started.job});
  return started;
}

void StateMachine::Report(ActiveJob& job, const ProgressReport& report) {
  std::shared_ptr<const Job> current;
  absl::Status stored;
  {
    MutexLock lock(job.mutex);
    Job next = *job.job;
    next.progress = report;
    stored = Commit(job, std::move(next));
    current = job.job;
  }
  if (stored.ok()) {
    TellWatchers(job, {JobEvent::Kind::kProgress, std::move(current)});
  } else {
    parts_.listener.OnBackgroundError(*current, stored);
  }
}

void StateMachine::End(const JobPtr& job, JobState from, Ending ending) {
  std::shared_ptr<const Job> ended;
  absl::Status stored;
  bool announced = false;
  {
    MutexLock lock(job->mutex);
    if (job->job->state != from) return;
    job->inputs.reset();
    Job next = *job->job;
    next.state = ending.state;
    next.error = std::move(ending.error);
    next.result = std::move(ending.result);
    next.end_time = parts_.clock.Now();
    next.expire_time = next.end_time + next.spec.result_ttl;
    stored = Commit(*job, std::move(next));
    ended = job->job;
    announced = job->announced;
    parts_.table.Ended(job, from == JobState::kRunning, stored.ok());
  }
  parts_.scheduler.Remove(*job);
  if (announced) parts_.listener.OnEnded(*ended);
  TellWatchers(*job, {JobEvent::Kind::kStateChange, ended});
  if (!stored.ok()) parts_.listener.OnBackgroundError(*ended, stored);
  parts_.table.Announced();
}

void StateMachine::EndExpired(const JobPtr& job) {
  End(job, JobState::kQueued, DeadlinePassed(*job->Current()));
}

// A job that starts in between sees the signal; one that has ended ignores it.
void StateMachine::Cancel(const JobPtr& job) {
  job->stop.Request();
  parts_.scheduler.OnStopRequested();
  End(job, JobState::kQueued, Ending());
}

std::shared_ptr<EventQueue> StateMachine::Watch(ActiveJob& job, int64_t after_revision,
                                                std::function<void()> wake) {
  MutexLock lock(job.mutex);
  Job now = *job.job;
  if (now.state == JobState::kQueued) now.queue_position = parts_.scheduler.Position(job.name);
  auto queue = std::make_shared<EventQueue>(EventsAfter(now, after_revision), std::move(wake));
  std::erase_if(job.watchers, [](const auto& watcher) { return watcher.expired(); });
  job.watchers.push_back(queue);
  return queue;
}

StateMachine::Ending StateMachine::DeadlinePassed(const Job& job) {
  return {JobState::kFailed,
          WithReason(absl::DeadlineExceededError(
                         absl::StrFormat("the deadline of %s passed before the job started",
                                         absl::FormatDuration(job.spec.deadline))),
                     "DEADLINE_EXCEEDED"),
          std::nullopt};
}

absl::Status StateMachine::Commit(ActiveJob& job, Job next) {
  next.revision = job.job->revision + 1;
  if (next.state != job.job->state) {
    next.state_revision = next.revision;
    RecordState(next);
  }
  auto committed = std::make_shared<const Job>(std::move(next));
  absl::Status stored = parts_.store.Update(*committed);
  // An end cannot be taken back: it is kept in memory until the store takes it.
  if (stored.ok() || IsTerminal(committed->state)) job.job = std::move(committed);
  return stored;
}

void StateMachine::TellWatchers(ActiveJob& job, const JobEvent& event) {
  std::vector<std::weak_ptr<EventQueue>> watchers;
  {
    MutexLock lock(job.mutex);
    watchers = job.watchers;
  }
  for (const std::weak_ptr<EventQueue>& weak : watchers) {
    if (const std::shared_ptr<EventQueue> watcher = weak.lock()) watcher->Push(event);
  }
}

}  // namespace sparsefw::server
