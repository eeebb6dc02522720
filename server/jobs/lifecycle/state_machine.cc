#include "server/jobs/lifecycle/state_machine.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "server/failpoint/failpoint.h"
#include "server/jobs/lifecycle/job_history.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
absl::Status StateMachine::Accept(const JobPtr& job, std::string_view request_id,
                                  std::string_view fingerprint, const JobRoom& room) {
  // Added before it is stored, so that a client that finds it in a list can watch it.
  parts_.table.Add(job);
  absl::Cleanup remove = [&] { parts_.table.Remove(job->name); };  // also where memory runs out
  {
    // A drain that finds it waits, since it could not change what is not stored yet.
    MutexLock lock(job->mutex);
    SPARSEFW_RETURN_IF_ERROR(parts_.store.Insert(*job->job, request_id, fingerprint, room));
  }
  std::move(remove).Cancel();
  Failpoint("job.accepted");
  Announce(*job);
  Enqueue(job);
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
  absl::Status not_now;
  Started started;
  {
    MutexLock lock(job->mutex);
    if (!job->Waits()) return std::nullopt;
    Job next = *job->job;
    ChangeState(next, JobState::kRunning, next.revision + 1);
    next.start_time = parts_.clock.Now();
    ++next.attempts;
    next.alone = job->need.alone;
    if (job->deadline <= parts_.clock.SteadyNow()) {
      refused = DeadlinePassed(next);
    } else if (absl::Status stored = Commit(*job, std::move(next)); !stored.ok()) {
      if (parts_.store.durable()) {
        not_now = std::move(stored);
      } else {
        refused = Ending{JobState::kFailed, std::move(stored), std::nullopt};
      }
    } else {
      parts_.table.CountRunning();
      started = {job->job, std::move(job->inputs)};
    }
  }
  if (refused) {
    End(job, JobState::kQueued, *std::move(refused));
    return std::nullopt;
  }
  if (!not_now.ok()) {
    parts_.listener.OnBackgroundError(*job->Current(), not_now);
    return std::nullopt;
  }
  Failpoint("job.started");
  parts_.listener.OnStarted(*started.job);
  announcer_.Tell(job, {JobEvent::Kind::kStateChange, started.job});
  return started;
}

void StateMachine::Enqueue(const JobPtr& job) {
  absl::Status queued;
  {
    MutexLock lock(job->mutex);
    if (!job->Waits()) return;
    queued = parts_.scheduler.Enqueue(job);
  }
  // A device was lost since the job was found possible.
  if (!queued.ok()) {
    End(job, JobState::kQueued, {JobState::kFailed, std::move(queued), std::nullopt});
  }
}

void StateMachine::End(const JobPtr& job, JobState from, Ending ending) {
  StoredEnd end;
  {
    MutexLock lock(job->mutex);
    if (job->job->state != from || job->unstored_end != nullptr) return;
    end = Store(job, from, std::move(ending));
  }
  Tell(job, end).IgnoreError();  // the listener was told
}

StateMachine::StoredEnd StateMachine::Store(const JobPtr& job, JobState from, Ending ending) {
  job->inputs.reset();
  if (std::optional<JobEvent> last = job->TakeReport()) {
    announcer_.Tell(job, *std::move(last));
  }
  Job next = job->Now();
  ChangeState(next, ending.state, next.revision + 1);
  next.error = std::move(ending.error);
  next.result = std::move(ending.result);
  next.end_time = parts_.clock.Now();
  next.expire_time = next.end_time + next.spec.result_ttl;
  Failpoint("job.end");
  StoredEnd end;
  end.stored = parts_.store.Update(next);
  Failpoint("job.ended");
  end.job = std::make_shared<const Job>(std::move(next));
  end.announced = job->announced;
  end.kept_back = !end.stored.ok() && parts_.store.durable();
  if (end.kept_back) {
    job->unstored_end = end.job;
    parts_.table.KeptBack(job, from == JobState::kRunning);
  } else {
    job->Replace(end.job);
    parts_.table.Ended(job, from == JobState::kRunning, end.stored.ok());
  }
  return end;
}

absl::Status StateMachine::Tell(const JobPtr& job, const StoredEnd& end) {
  parts_.scheduler.Remove(*job);
  if (!end.stored.ok()) parts_.listener.OnBackgroundError(*end.job, end.stored);
  if (!end.kept_back) TellEnd(job, end.job, end.announced);
  return end.kept_back ? end.stored : absl::OkStatus();
}

void StateMachine::TellEnd(const JobPtr& job, const std::shared_ptr<const Job>& ended,
                           bool announced) {
  // A process that ends before the store knows of the end leaves the job and its inputs to the
  // next.
  ReleaseInputs(parts_, *ended);
  if (announced) parts_.listener.OnEnded(*ended);
  announcer_.Tell(job, {JobEvent::Kind::kStateChange, ended});
}

absl::Status StateMachine::StoreEnd(const JobPtr& job) {
  std::shared_ptr<const Job> ended;
  bool announced = false;
  {
    MutexLock lock(job->mutex);
    const bool told = job->unstored_end == nullptr;
    SPARSEFW_RETURN_IF_ERROR(parts_.store.Update(told ? *job->job : *job->unstored_end));
    parts_.table.ForgetUnstored(job->name);
    if (told) return absl::OkStatus();
    ended = std::move(job->unstored_end);
    job->Replace(ended);
    announced = job->announced;
    parts_.table.Ended(job, /*was_running=*/false, /*stored=*/true);
  }
  TellEnd(job, ended, announced);
  return absl::OkStatus();
}

void StateMachine::Stop(const JobPtr& job, ActiveJob::StopReason why) {
  {
    MutexLock lock(job->mutex);
    job->AskToStop(why);
  }
  parts_.scheduler.OnStopRequested();
}

// A queued job ends before anybody else sees it: it cannot start in between. The store learns
// first that a running one is cancelled, so that no later process runs it again.
absl::Status StateMachine::Cancel(const JobPtr& job) {
  absl::Status stored;
  std::optional<StoredEnd> end;
  bool unstored = false;  // ends as soon as the store takes it
  {
    MutexLock lock(job->mutex);
    if (job->unstored_end != nullptr) {
      unstored = true;
    } else if (job->job->state == JobState::kQueued) {
      end = Store(job, JobState::kQueued, Ending());
    } else if (parts_.store.durable() && job->job->state == JobState::kRunning &&
               !job->job->cancel_requested) {
      Job next = job->Now();
      next.cancel_requested = true;
      stored = Commit(*job, std::move(next));
    }
    job->AskToStop(ActiveJob::StopReason::kCancelled);
  }
  if (unstored) return StoreEnd(job);
  if (end) return Tell(job, *end);
  parts_.scheduler.OnStopRequested();
  return stored;
}

void StateMachine::Suspend(const JobPtr& job) {
  absl::Status stored;
  {
    MutexLock lock(job->mutex);
    if (job->suspended || job->job->state != JobState::kQueued) return;
    job->suspended = true;
    if (job->job->spec.ends_with_stream && job->unstored_end == nullptr) {
      Job next = *job->job;
      next.spec.ends_with_stream = false;
      stored = Commit(*job, std::move(next));
    }
  }
  if (!stored.ok()) parts_.listener.OnBackgroundError(*job->Current(), stored);
  announcer_.Suspend(job);
}

// Where the store refuses, it still says that the job runs, and the next start
// takes that for a crash.
bool StateMachine::Requeue(const JobPtr& job) {
  std::shared_ptr<const Job> queued;
  absl::Status stored;
  {
    MutexLock lock(job->mutex);
    if (job->stop_reason != ActiveJob::StopReason::kInterrupted) return false;
    Job next = job->Now();
    ReturnToQueue(next, next.revision + 1);
    next.spec.ends_with_stream = false;
    --next.attempts;
    stored = Commit(*job, std::move(next));
    job->suspended = true;
    queued = job->job;
    // Under the lock: a cancel would tell of its end first.
    if (stored.ok()) announcer_.Tell(job, {JobEvent::Kind::kStateChange, queued});
  }
  Failpoint("job.requeued");
  if (stored.ok()) {
    parts_.listener.OnInterrupted(*queued);
  } else {
    parts_.listener.OnBackgroundError(*queued, stored);
  }
  announcer_.Suspend(job);
  parts_.table.Suspended();
  return true;
}

absl::StatusOr<std::shared_ptr<EventQueue>> StateMachine::Watch(ActiveJob& job,
                                                                int64_t after_revision,
                                                                std::function<void()> wake) {
  std::shared_ptr<EventQueue> queue;
  bool suspended = false;
  {
    MutexLock lock(job.mutex);
    Job now = job.Now();
    if (now.state == JobState::kQueued) now.queue_position = parts_.scheduler.Position(job.name);
    SPARSEFW_ASSIGN_OR_RETURN(std::vector<JobEvent> first, EventsAfter(now, after_revision));
    queue = std::make_shared<EventQueue>(std::move(first), std::move(wake));
    std::erase_if(job.watchers, [](const auto& watcher) { return watcher.expired(); });
    job.watchers.push_back(queue);
    suspended = job.suspended;
  }
  if (suspended) queue->Suspend();
  return queue;
}

StateMachine::Ending StateMachine::DeadlinePassed(const Job& job) {
  return {JobState::kFailed,
          Refuse(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                 "the deadline of %s passed before the job started",
                 absl::FormatDuration(job.spec.deadline)),
          std::nullopt};
}

absl::Status StateMachine::Commit(ActiveJob& job, Job next) {
  const absl::Status stored = parts_.store.Update(next);
  if (stored.ok()) job.Replace(std::make_shared<const Job>(std::move(next)));
  return stored;
}

}  // namespace sparsefw::server
