#include "server/tensors/uploads/staging_budget.h"

#include <utility>

namespace sparsefw::server {

StagingBudget::Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

StagingBudget::Reservation& StagingBudget::Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Release();
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void StagingBudget::Reservation::Release() {
  StagingBudget* budget = std::exchange(budget_, nullptr);
  const int64_t bytes = std::exchange(bytes_, 0);
  if (budget != nullptr) budget->GiveBack(bytes);
}

bool StagingBudget::Fits(int64_t bytes) const { return used_ == 0 || bytes <= limit_ - used_; }

StagingBudget::WaiterId StagingBudget::Acquire(int64_t bytes, OnGranted on_granted) {
  {
    MutexLock lock(mutex_);
    if (!waiters_.empty() || !Fits(bytes)) {
      waiters_.emplace(++last_id_, Waiter{bytes, std::move(on_granted)});
      return last_id_;
    }
    used_ += bytes;
  }
  on_granted(Reservation(this, bytes));
  return kGranted;
}

bool StagingBudget::Cancel(WaiterId id) {
  Waiter cancelled;  // destroyed without the lock: what it captured may give back bytes
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

int64_t StagingBudget::used() const {
  MutexLock lock(mutex_);
  return used_;
}

int64_t StagingBudget::waiting() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(waiters_.size());
}

void StagingBudget::GrantWaiters() {
  while (!waiters_.empty() && Fits(waiters_.begin()->second.bytes)) {
    Waiter& first = waiters_.begin()->second;
    used_ += first.bytes;
    granted_.push_back(std::move(first));
    waiters_.erase(waiters_.begin());
  }
}

void StagingBudget::GiveBack(int64_t bytes) {
  {
    MutexLock lock(mutex_);
    used_ -= bytes;
    GrantWaiters();
  }
  CallGranted();
}

// One thread at a time calls, in a loop: a callback that gives its bytes back
// at once would otherwise recurse as deep as there are waiters.
void StagingBudget::CallGranted() {
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
    next.on_granted(Reservation(this, next.bytes));
  }
}

}  // namespace sparsefw::server
