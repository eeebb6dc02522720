// Threads for work that must not run on gRPC's own: disk, validation, sums.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_EXECUTOR_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_EXECUTOR_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/metrics/gauges.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Work of calls, in a queue for each caller. Callers are served in turn, whatever
// the length of their queues, and one caller's work holds all threads but one at most:
// another's never waits for the end of it. Thread-safe.
class Executor {
 public:
  // Work in pieces. True: more is to be done. It then keeps its place in its caller's
  // queue and waits until the others have had their turns.
  using Work = std::function<bool()>;
  using TaskId = int64_t;

  enum class Entry {
    kNew,      // a call's first: refused where its caller has too much waiting
    kFollows,  // of a call that was let in before
  };

  // New tasks of one caller; a request waits for each of them.
  static constexpr int64_t kMaxNew = 1000;

  // Makes one thread more than a caller may hold, which is at least 1.
  explicit Executor(int threads_per_caller, int64_t max_new = kMaxNew);
  // Runs what was posted, then joins.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Errors: ResourceExhausted  `max_new` of this caller wait (TOO_MANY_CALLS, with a
  //                            retry delay)
  absl::StatusOr<TaskId> Post(std::string_view caller, Entry entry, Work work);
  // Drops the work unless it has begun: it costs nobody a turn.
  void Withdraw(std::string_view caller, TaskId id);

  // Waits until there is no work. Returns how many tasks were posted until then.
  TaskId AwaitIdle();

  // Without its name. A piece of work waits anew.
  ExecutorGauges usage() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Task {
    Work work;
    Entry entry = Entry::kNew;
    Clock::time_point since;
    bool begun = false;
  };
  // The share of one caller, as long as it has work.
  struct Share {
    std::string caller;
    std::map<TaskId, Task> queue;  // in order of arrival
    int64_t queued_new = 0;
    int running = 0;
    bool in_turns = false;
  };

  void Run();
  void RunOne(Share& share, TaskId id, Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  // The next of `turns_` with work; null: none.
  Share* NextShare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives it a turn if it can use one; forgets it when it has no work.
  void Settle(Share& share) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int threads_per_caller_;
  const int64_t max_new_;
  mutable Mutex mutex_;
  CondVar wake_;
  CondVar idle_;
  std::map<std::string, Share, std::less<>> shares_ ABSL_GUARDED_BY(mutex_);
  // Shares that may use a thread. One whose work was withdrawn stays until its turn.
  std::deque<Share*> turns_ ABSL_GUARDED_BY(mutex_);
  TaskId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t withdrawn_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_EXECUTOR_H_
