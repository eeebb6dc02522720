#include "server/rpc/runtime/executor.h"

#include <algorithm>
#include <utility>

#include "sparsefw/reason.h"

namespace sparsefw::server {

Executor::Executor(int threads_per_caller, int64_t max_new)
    : threads_per_caller_(std::max(1, threads_per_caller)),
      max_new_(std::max(int64_t{1}, max_new)) {
  const int threads = threads_per_caller_ + 1;
  threads_.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

Executor::~Executor() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<Executor::TaskId> Executor::Post(std::string_view caller, Entry entry, Work work) {
  MutexLock lock(mutex_);
  const auto found = shares_.find(caller);
  Share& share = found != shares_.end() ? found->second : shares_[std::string(caller)];
  share.caller = caller;
  if (entry == Entry::kNew) {
    if (share.queued_new >= max_new_) {
      return RefuseForNow(
          absl::StatusCode::kResourceExhausted, "TOO_MANY_CALLS",
          "calls of one caller that wait for a thread must be at most %d; there are %d", max_new_,
          max_new_);
    }
    ++share.queued_new;
  }
  const TaskId id = next_id_++;
  share.queue.emplace(id, Task{std::move(work), entry, Clock::now()});
  Settle(share);
  return id;
}

void Executor::Withdraw(std::string_view caller, TaskId id) {
  Work dropped;  // destroyed without the lock
  MutexLock lock(mutex_);
  const auto found = shares_.find(caller);
  if (found == shares_.end()) return;
  Share& share = found->second;
  const auto task = share.queue.find(id);
  if (task == share.queue.end() || task->second.begun) return;
  if (task->second.entry == Entry::kNew) --share.queued_new;
  dropped = std::move(task->second.work);
  share.queue.erase(task);
  ++withdrawn_;
  Settle(share);
}

Executor::TaskId Executor::AwaitIdle() {
  MutexLock lock(mutex_);
  while (!shares_.empty()) idle_.Wait(mutex_);
  return next_id_ - 1;
}

ExecutorGauges Executor::usage() const {
  MutexLock lock(mutex_);
  ExecutorGauges usage = {.name = {}, .begun = begun_, .withdrawn = withdrawn_};
  const Clock::time_point now = Clock::now();
  for (const auto& [caller, share] : shares_) {
    usage.queued += std::ssize(share.queue);
    for (const auto& [id, task] : share.queue) {
      usage.oldest_wait = std::max(usage.oldest_wait, absl::FromChrono(now - task.since));
      // Tasks that have begun stand first; none behind this one is older.
      if (!task.begun) break;
    }
  }
  return usage;
}

void Executor::Run() {
  while (true) {
    Share* share = nullptr;
    TaskId id = 0;
    Task task;
    {
      MutexLock lock(mutex_);
      while ((share = NextShare()) == nullptr) {
        if (stopping_ && shares_.empty()) return;
        wake_.Wait(mutex_);
      }
      auto first = share->queue.extract(share->queue.begin());
      id = first.key();
      task = std::move(first.mapped());
      if (!std::exchange(task.begun, true)) ++begun_;
      if (std::exchange(task.entry, Entry::kFollows) == Entry::kNew) --share->queued_new;
      ++share->running;
      Settle(*share);
    }
    RunOne(*share, id, std::move(task));
  }
}

void Executor::RunOne(Share& share, TaskId id, Task task) {
  const bool more = task.work();
  if (!more) task.work = nullptr;  // destroyed without the lock
  MutexLock lock(mutex_);
  --share.running;
  if (more) {
    task.since = Clock::now();
    share.queue.emplace(id, std::move(task));
  }
  Settle(share);
}

Executor::Share* Executor::NextShare() {
  while (!turns_.empty()) {
    Share* share = turns_.front();
    turns_.pop_front();
    share->in_turns = false;
    if (!share->queue.empty()) return share;
    Settle(*share);
  }
  return nullptr;
}

void Executor::Settle(Share& share) {
  if (share.in_turns) return;
  if (!share.queue.empty()) {
    if (share.running >= threads_per_caller_) return;
    share.in_turns = true;
    turns_.push_back(&share);
    return wake_.NotifyOne();
  }
  if (share.running > 0) return;
  shares_.erase(shares_.find(share.caller));
  if (!shares_.empty()) return;
  idle_.NotifyAll();
  if (stopping_) wake_.NotifyAll();
}

}  // namespace sparsefw::server
