#include "server/rpc/runtime/timer.h"

namespace sparsefw::server {

Timer::Timer() : thread_([this] { Run(); }) {}

void Timer::Stop() {
  std::map<std::pair<Clock::time_point, int64_t>, std::function<void()>> dropped;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    dropped.swap(tasks_);
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Timer::After(std::chrono::nanoseconds delay, std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    tasks_.emplace(std::make_pair(Clock::now() + delay, next_++), std::move(task));
  }
  wake_.NotifyOne();
}

void Timer::Every(std::chrono::nanoseconds period, std::function<void()> task) {
  After(period, [this, period, task = std::move(task)] {
    task();
    Every(period, task);
  });
}

void Timer::Run() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (true) {
        if (stopping_) return;
        if (tasks_.empty()) {
          wake_.Wait(mutex_);
          continue;
        }
        const auto wait = tasks_.begin()->first.first - Clock::now();
        if (wait <= Clock::duration::zero()) break;
        wake_.WaitFor(mutex_, wait);
      }
      task = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
    }
    task();
  }
}

}  // namespace sparsefw::server
