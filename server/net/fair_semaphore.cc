#include "server/net/fair_semaphore.h"

namespace sparsefw::server {

void FairSemaphore::Reservation::Release() {
  FairSemaphore* semaphore = std::exchange(semaphore_, nullptr);
  const int64_t units = std::exchange(units_, 0);
  if (semaphore != nullptr) semaphore->GiveBack(units);
}

bool FairSemaphore::Fits(int64_t units) const {
  if (used_ != 0 && units > limit_ - used_) return false;
  return may_grant_ == nullptr || may_grant_();
}

FairSemaphore::WaiterId FairSemaphore::Acquire(int64_t units, OnGranted on_granted) {
  {
    MutexLock lock(mutex_);
    if (!waiters_.empty() || !Fits(units)) {
      waiters_.emplace(++last_id_, Waiter{units, std::move(on_granted)});
      return last_id_;
    }
    used_ += units;
  }
  on_granted(Reservation(this, units));
  return kGranted;
}

bool FairSemaphore::Cancel(WaiterId id) {
  Waiter cancelled;  // destroyed without the lock: what it captured may give back units
  {
    MutexLock lock(mutex_);
    const auto found = waiters_.find(id);
    if (found == waiters_.end()) return false;
    cancelled = std::move(found->second);
    waiters_.erase(found);
    GrantWaiters();  // it may have been the large one that the others stood behind
  }
  CallGranted();
  return true;
}

int64_t FairSemaphore::used() const {
  MutexLock lock(mutex_);
  return used_;
}

int64_t FairSemaphore::waiting() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(waiters_.size());
}

void FairSemaphore::GrantWaiters() {
  while (!waiters_.empty() && Fits(waiters_.begin()->second.units)) {
    Waiter& first = waiters_.begin()->second;
    used_ += first.units;
    granted_.push_back(std::move(first));
    waiters_.erase(waiters_.begin());
  }
}

void FairSemaphore::GiveBack(int64_t units) {
  {
    MutexLock lock(mutex_);
    used_ -= units;
    GrantWaiters();
  }
  CallGranted();
}

// One thread at a time calls, in a loop: a callback that gives its units back
// at once would otherwise recurse as deep as there are waiters.
void FairSemaphore::CallGranted() {
  {
    MutexLock lock(mutex_);
    if (calling_) return;
    calling_ = true;
  }
  while (true) {
    Waiter next;
    {
      MutexLock lock(mutex_);
      if (granted_.empty()) {
        calling_ = false;
        return;
      }
      next = std::move(granted_.front());
      granted_.pop_front();
    }
    next.on_granted(Reservation(this, next.units));
  }
}

}  // namespace sparsefw::server
