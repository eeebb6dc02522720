#include "server/rpc/runtime/executor.h"

#include <algorithm>
#include <utility>

namespace sparsefw::server {

Executor::Executor(int threads) {
  threads_.reserve(static_cast<size_t>(std::max(1, threads)));
  for (int i = 0; i < std::max(1, threads); ++i) threads_.emplace_back([this] { Run(); });
}

Executor::~Executor() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void Executor::Post(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.NotifyOne();
}

void Executor::Run() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !stopping_) wake_.Wait(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void Strand::Post(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    if (scheduled_) return;
    scheduled_ = true;
  }
  executor_->Post([self = shared_from_this()] { self->RunOne(); });
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
  {
    MutexLock lock(mutex_);
    if (tasks_.empty()) {
      scheduled_ = false;
      return;
    }
  }
  executor_->Post([self = shared_from_this()] { self->RunOne(); });
}

}  // namespace sparsefw::server
