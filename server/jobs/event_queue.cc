#include "server/jobs/event_queue.h"

#include <utility>

namespace sparsefw::server {

EventQueue::EventQueue(std::vector<JobEvent> first, std::function<void()> wake)
    : wake_(std::move(wake)) {
  MutexLock lock(mutex_);
  for (JobEvent& event : first) Append(std::move(event));
}

void EventQueue::Push(JobEvent event) {
  {
    MutexLock lock(mutex_);
    if (event.revision() <= revision_) return;
    Append(std::move(event));
  }
  wake_();
}

void EventQueue::Append(JobEvent event) {
  latest_ = event.job;
  revision_ = event.revision();
  if (!pending_.empty() && pending_.back().kind == JobEvent::Kind::kProgress) pending_.pop_back();
  pending_.push_back(std::move(event));
}

std::optional<JobEvent> EventQueue::Next() {
  MutexLock lock(mutex_);
  if (pending_.empty()) return std::nullopt;
  std::optional<JobEvent> event = std::move(pending_.front());
  pending_.pop_front();
  return event;
}

bool EventQueue::ended() const {
  MutexLock lock(mutex_);
  return pending_.empty() && latest_ != nullptr && IsTerminal(latest_->state);
}

void EventQueue::Suspend() {
  {
    MutexLock lock(mutex_);
    suspended_ = true;
  }
  wake_();
}

bool EventQueue::suspended() const {
  MutexLock lock(mutex_);
  return suspended_ && pending_.empty();
}

bool EventQueue::goes_on() const {
  MutexLock lock(mutex_);
  return suspended_ && latest_ != nullptr && !IsTerminal(latest_->state);
}

std::shared_ptr<const Job> EventQueue::latest() const {
  MutexLock lock(mutex_);
  return latest_;
}

}  // namespace sparsefw::server
