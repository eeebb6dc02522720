// Threads for work that must not run on gRPC's own: disk, validation, sums.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_EXECUTOR_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_EXECUTOR_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "sparsefw/mutex.h"

namespace sparsefw::server {

// A fixed number of threads and one queue. Thread-safe. The queue needs no
// bound of its own: an RPC has at most one task in it (streams through their
// Strand), and the number of RPCs is bounded by gRPC.
class Executor {
 public:
  explicit Executor(int threads);
  // Runs what was posted, then joins.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void Post(std::function<void()> task);

 private:
  void Run();

  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Runs its tasks one at a time and in order, on an executor's threads.
// Thread-safe. The executor must outlive the last task.
class Strand : public std::enable_shared_from_this<Strand> {
 public:
  explicit Strand(Executor* executor) : executor_(executor) {}
  void Post(std::function<void()> task);

 private:
  void RunOne();

  Executor* const executor_;
  Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool scheduled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_EXECUTOR_H_
