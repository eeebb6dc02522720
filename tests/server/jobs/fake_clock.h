// A clock that stands still until a test moves it.
#ifndef SPARSEFW_TESTS_SERVER_JOBS_FAKE_CLOCK_H_
#define SPARSEFW_TESTS_SERVER_JOBS_FAKE_CLOCK_H_

#include <algorithm>
#include <list>
#include <vector>

#include "absl/time/time.h"
#include "server/jobs/clock.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Thread-safe. Whoever waits on it must outlive calls of Advance.
class FakeClock final : public Clock {
 public:
  absl::Time Now() override {
    MutexLock lock(mutex_);
    return now_ + step_;
  }
  absl::Time SteadyNow() override {
    MutexLock lock(mutex_);
    return now_;
  }
  // Somebody sets the wall clock.
  void Step(absl::Duration duration) {
    MutexLock lock(mutex_);
    step_ += duration;
  }

  void WaitUntil(CondVar& condition, Mutex& mutex, absl::Time time) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::list<Waiter>::iterator self;
    {
      MutexLock lock(mutex_);
      if (time <= now_) return;
      self = waiters_.insert(waiters_.end(), {&condition, &mutex, time});
      arrived_.NotifyAll();
    }
    condition.Wait(mutex);
    MutexLock lock(mutex_);
    waiters_.erase(self);
  }

  // Wakes those whose time has come, and nobody else.
  void Advance(absl::Duration duration) {
    std::vector<Waiter> due;
    {
      MutexLock lock(mutex_);
      now_ += duration;
      for (const Waiter& waiter : waiters_) {
        if (waiter.time <= now_) due.push_back(waiter);
      }
    }
    for (const Waiter& waiter : due) {
      // Who has looked at the time but does not wait yet holds its mutex.
      waiter.mutex->Lock();
      waiter.mutex->Unlock();
      waiter.condition->NotifyAll();
    }
  }

  // Returns once somebody waits for `time`.
  void AwaitWaiter(absl::Time time) {
    MutexLock lock(mutex_);
    const auto waits = [time](const Waiter& waiter) { return waiter.time == time; };
    while (std::none_of(waiters_.begin(), waiters_.end(), waits)) arrived_.Wait(mutex_);
  }

  // Time passes, and those who wait for it are late to notice.
  void AdvanceUnnoticed(absl::Duration duration) {
    MutexLock lock(mutex_);
    now_ += duration;
  }

 private:
  struct Waiter {
    CondVar* condition;
    Mutex* mutex;
    absl::Time time;
  };
  Mutex mutex_;
  CondVar arrived_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1'700'000'000);
  absl::Duration step_ ABSL_GUARDED_BY(mutex_);
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_JOBS_FAKE_CLOCK_H_
