#include "server/jobs/lifecycle/announcer.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace sparsefw::server {
namespace {

using SteadyClock = std::chrono::steady_clock;

std::vector<std::shared_ptr<EventQueue>> WatchersOf(ActiveJob& job) {
  std::vector<std::shared_ptr<EventQueue>> watchers;
  MutexLock lock(job.mutex);
  watchers.reserve(job.watchers.size());
  for (const std::weak_ptr<EventQueue>& weak : job.watchers) {
    if (auto watcher = weak.lock()) watchers.push_back(std::move(watcher));
  }
  return watchers;
}

void Push(ActiveJob& job, const JobEvent& event) {
  for (const auto& watcher : WatchersOf(job)) watcher->Push(event);
}

}  // namespace

Announcer::Announcer(const JobParts& parts) : parts_(parts), thread_([this] { Run(); }) {}

Announcer::~Announcer() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
}

void Announcer::Report(const JobPtr& job, const ProgressReport& report) {
  {
    MutexLock lock(job->report_mutex);
    const bool waits = job->report.has_value();
    job->report = report;
    if (waits) return;
  }
  MutexLock lock(mutex_);
  reported_.push_back(job);
  wake_.NotifyOne();
}

void Announcer::Tell(const JobPtr& job, JobEvent event) { Post({job, std::move(event)}); }

void Announcer::Suspend(const JobPtr& job) { Post({job, {}}); }

void Announcer::Post(Notice notice) {
  MutexLock lock(mutex_);
  notices_.push_back(std::move(notice));
  ++posted_;
  wake_.NotifyOne();
}

void Announcer::Flush() {
  MutexLock lock(mutex_);
  const int64_t last = posted_;
  while (done_ < last) delivered_.Wait(mutex_);
}

void Announcer::Run() {
  Work work;
  while (Await(&work)) {
    for (const Notice& notice : work.notices) Deliver(notice);
    if (!work.reported.empty()) {
      const auto begin = SteadyClock::now();
      for (const JobPtr& job : work.reported) AnnounceProgress(*job);
      const auto end = SteadyClock::now();
      // Many watchers do not make it more than half of a thread's time.
      next_round_ = end + std::max<SteadyClock::duration>(kPause, end - begin);
    }
    const auto delivered = static_cast<int64_t>(work.notices.size());
    work = Work();  // a job may go with it
    MutexLock lock(mutex_);
    done_ += delivered;
    delivered_.NotifyAll();
  }
}

// Takes the notices first, and reports when their time has come.
bool Announcer::Await(Work* work) {
  MutexLock lock(mutex_);
  while (true) {
    work->notices.swap(notices_);
    const auto pause = next_round_ - SteadyClock::now();
    if (pause <= SteadyClock::duration::zero() || stopping_) work->reported.swap(reported_);
    if (!work->notices.empty() || !work->reported.empty()) return true;
    if (stopping_) return false;
    if (reported_.empty()) {
      wake_.Wait(mutex_);
    } else {
      wake_.WaitFor(mutex_, pause);
    }
  }
}

void Announcer::Deliver(const Notice& notice) {
  if (notice.event.job == nullptr) {
    for (const auto& watcher : WatchersOf(*notice.job)) watcher->Suspend();
    return;
  }
  Push(*notice.job, notice.event);
  if (IsTerminal(notice.event.job->state)) parts_.table.Announced();
}

void Announcer::AnnounceProgress(ActiveJob& job) {
  std::optional<JobEvent> event;
  absl::Status stored;
  {
    MutexLock lock(job.mutex);
    event = job.TakeReport();
    if (!event.has_value()) return;
    const absl::Time now = parts_.clock.SteadyNow();
    if (now >= job.progress_stored + kStorePeriod) {
      job.progress_stored = now;
      // Under the job's lock: after its end it would be older than what is stored.
      stored = parts_.store.UpdateProgress(job.name, *job.progress);
      if (stored.ok()) job.stored_revision = job.progress->revision;
    }
  }
  if (!stored.ok()) parts_.listener.OnBackgroundError(*event->job, stored);
  parts_.listener.OnProgress(*event->job, event->progress->report);
  Push(job, *event);
}

}  // namespace sparsefw::server
