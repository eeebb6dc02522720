#include "server/rpc/runtime/strand.h"

#include <utility>

namespace sparsefw::server {

void Strand::SetCaller(std::string caller) {
  MutexLock lock(mutex_);
  caller_ = std::move(caller);
}

void Strand::MoveTo(Executor* executor) {
  MutexLock lock(mutex_);
  executor_ = executor;
}

void Strand::Post(std::function<void()> task) {
  MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  if (!std::exchange(scheduled_, true)) Schedule();
}

void Strand::Schedule() {
  const auto posted =
      executor_->Post(caller_, Executor::Entry::kFollows, [self = shared_from_this()] {
        self->RunOne();
        return false;
      });
  static_cast<void>(posted);  // what follows is never refused
}

// One task a turn, so that a busy stream does not keep a thread to itself.
void Strand::RunOne() {
  std::function<void()> task;
  {
    MutexLock lock(mutex_);
    task = std::move(tasks_.front());
    tasks_.pop_front();
  }
  task();
  task = nullptr;
  MutexLock lock(mutex_);
  scheduled_ = !tasks_.empty();
  if (scheduled_) Schedule();
}

}  // namespace sparsefw::server
