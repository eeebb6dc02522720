#include "server/jobs/result_fetches.h"

#include <algorithm>

namespace sparsefw::server {

void ResultFetches::Sending(const std::string& mask) {
  MutexLock lock(mutex_);
  DropLate();
  outstanding_.emplace(mask, clock_.SteadyNow() + grace_);
}

void ResultFetches::Remove(const std::string& mask) {
  MutexLock lock(mutex_);
  const auto found = outstanding_.find(mask);
  if (found == outstanding_.end()) return;
  outstanding_.erase(found);
  changed_.NotifyAll();
}

void ResultFetches::WaitUntilFetched(absl::Time end) {
  MutexLock lock(mutex_);
  while (true) {
    DropLate();
    if (outstanding_.empty() || clock_.SteadyNow() >= end) return;
    absl::Time next = end;
    for (const auto& [mask, until] : outstanding_) next = std::min(next, until);
    clock_.WaitUntil(changed_, mutex_, next);
  }
}

void ResultFetches::DropLate() {
  const absl::Time now = clock_.SteadyNow();
  std::erase_if(outstanding_, [now](const auto& entry) { return entry.second <= now; });
}

}  // namespace sparsefw::server
