// Tasks of one stream, in order.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_STRAND_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_STRAND_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "server/rpc/runtime/executor.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Runs its tasks one at a time and in order, on an executor's threads. None is refused
// or withdrawn. Thread-safe. The executors must outlive the last task.
class Strand : public std::enable_shared_from_this<Strand> {
 public:
  explicit Strand(Executor* executor) : executor_(executor) {}

  // Whose turns its tasks take, of those posted from now on.
  void SetCaller(std::string caller);
  // Where the tasks run that have not begun.
  void MoveTo(Executor* executor);
  void Post(std::function<void()> task);

 private:
  void Schedule() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunOne();

  Mutex mutex_;
  Executor* executor_ ABSL_GUARDED_BY(mutex_);
  std::string caller_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool scheduled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_STRAND_H_
