#include "server/jobs/result_fetches.h"

#include <algorithm>
#include <iterator>

namespace sparsefw::server {

void ResultFetches::Sending(const std::string& mask) {
  MutexLock lock(mutex_);
  DropLate();
  const absl::Time until = clock_.SteadyNow() + grace_;
  by_time_.push_back({until, outstanding_.end()});
  by_time_.back().entry = outstanding_.emplace(mask, std::prev(by_time_.end()));
}

void ResultFetches::Remove(const std::string& mask) {
  MutexLock lock(mutex_);
  const auto found = outstanding_.find(mask);
  if (found == outstanding_.end()) return;
  by_time_.erase(found->second);
  outstanding_.erase(found);
  changed_.NotifyAll();
}

void ResultFetches::WaitUntilFetched(absl::Time end) {
  MutexLock lock(mutex_);
  while (true) {
    DropLate();
    if (outstanding_.empty() || clock_.SteadyNow() >= end) return;
    clock_.WaitUntil(changed_, mutex_, std::min(end, by_time_.front().until));
  }
}

void ResultFetches::DropLate() {
  const absl::Time now = clock_.SteadyNow();
  for (; !by_time_.empty() && by_time_.front().until <= now; by_time_.pop_front()) {
    outstanding_.erase(by_time_.front().entry);
  }
}

}  // namespace sparsefw::server
