// Calls functions later: heartbeats, periodic work.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_TIMER_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_TIMER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "sparsefw/mutex.h"

namespace sparsefw::server {

// One thread on the steady clock. Thread-safe. Functions must be quick; they
// are destroyed once they have run or the timer is stopped.
class Timer {
 public:
  Timer();
  ~Timer() { Stop(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void After(std::chrono::nanoseconds delay, std::function<void()> task);
  // Repeats the task, each time `period` after the end of the last.
  void Every(std::chrono::nanoseconds period, std::function<void()> task);
  // Ends with the task that runs now. Drops all others, and those that come later.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  void Run();

  Mutex mutex_;
  CondVar wake_;
  // Sorted by time, then by order of arrival.
  std::map<std::pair<Clock::time_point, int64_t>, std::function<void()>> tasks_
      ABSL_GUARDED_BY(mutex_);
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_TIMER_H_
