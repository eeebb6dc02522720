#include "server/rpc/runtime/reactor_registry.h"

#include "server/jobs/submission/submission.h"
#include "server/rpc/runtime/call.h"

namespace sparsefw::server {

bool ReactorRegistry::Add(const std::shared_ptr<Call>& call) {
  MutexLock lock(mutex_);
  calls_[call.get()] = call;
  return !closed_;
}

void ReactorRegistry::Remove(const Call* call) {
  {
    MutexLock lock(mutex_);
    calls_.erase(call);
  }
  changed_.NotifyAll();
}

absl::Status ReactorRegistry::Admit() const {
  return draining() ? DrainingError() : absl::OkStatus();
}

// The calls are told outside the lock: finishing one may remove another.
std::map<const Call*, std::shared_ptr<Call>> ReactorRegistry::Snapshot() const {
  std::map<const Call*, std::shared_ptr<Call>> calls;
  MutexLock lock(mutex_);
  for (const auto& [key, weak] : calls_) {
    if (std::shared_ptr<Call> call = weak.lock()) calls[key] = std::move(call);
  }
  return calls;
}

void ReactorRegistry::BeginDrain() {
  {
    MutexLock lock(mutex_);
    draining_ = true;
  }
  for (const auto& [key, call] : Snapshot()) call->OnDrain();
}

void ReactorRegistry::Recheck() {
  for (const auto& [key, call] : Snapshot()) call->Recheck();
}

void ReactorRegistry::Tick() {
  for (const auto& [key, call] : Snapshot()) call->Tick();
}

void ReactorRegistry::CloseAll() {
  {
    MutexLock lock(mutex_);
    draining_ = true;
    closed_ = true;
  }
  for (const auto& [key, call] : Snapshot()) call->Close(DrainingError());
}

void ReactorRegistry::WaitUntilEmpty(absl::Duration timeout) {
  const auto end = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  MutexLock lock(mutex_);
  while (!calls_.empty()) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds::zero()) return;
    changed_.WaitFor(mutex_, left);
  }
}

bool ReactorRegistry::draining() const {
  MutexLock lock(mutex_);
  return draining_;
}

int64_t ReactorRegistry::size() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(calls_.size());
}

}  // namespace sparsefw::server
