#include "server/jobs/event_channel.h"

#include <utility>

namespace sparsefw::server {

EventChannel::EventChannel(std::shared_ptr<JobWatcher> watcher) : watcher_(std::move(watcher)) {}

void EventChannel::Push(JobWatcher::Event event, std::shared_ptr<const Job> job) {
  MutexLock lock(mutex_);
  if (closed_) return;
  if (event == JobWatcher::Event::kProgress && !pending_.empty() &&
      pending_.back().event == JobWatcher::Event::kProgress) {
    pending_.back().job = std::move(job);
    return;
  }
  pending_.push_back({event, std::move(job)});
}

void EventChannel::Open() { DeliverAsOwner(); }

void EventChannel::Deliver() {
  {
    MutexLock lock(mutex_);
    if (delivering_) return;
    delivering_ = true;
  }
  DeliverAsOwner();
}

void EventChannel::DeliverAsOwner() {
  mutex_.Lock();
  while (!closed_ && !pending_.empty()) {
    const Pending next = std::move(pending_.front());
    pending_.pop_front();
    mutex_.Unlock();
    watcher_->OnJob(next.event, *next.job);
    mutex_.Lock();
  }
  delivering_ = false;
  idle_.NotifyAll();
  mutex_.Unlock();
}

void EventChannel::Close() {
  std::shared_ptr<JobWatcher> watcher;  // may be destroyed here, after the lock
  MutexLock lock(mutex_);
  closed_ = true;
  pending_.clear();
  while (delivering_) idle_.Wait(mutex_);
  watcher = std::move(watcher_);
}

}  // namespace sparsefw::server
