#include "server/rpc/runtime/result_fetches.h"

#include <algorithm>
#include <map>

#include "absl/time/clock.h"

namespace sparsefw::server {
namespace {

// While serving: later than this whoever was told does not want it.
constexpr absl::Duration kRecent = absl::Milliseconds(500);

}  // namespace

void ResultFetches::Told(const std::string& mask) {
  const absl::Time now = absl::Now();
  MutexLock lock(mutex_);
  DropOldLocked(now);
  told_.emplace(mask, draining_ ? absl::InfiniteFuture() : now + kRecent);
}

void ResultFetches::Fetched(const std::string& mask) {
  MutexLock lock(mutex_);
  const auto found = told_.find(mask);
  if (found == told_.end()) return;
  told_.erase(found);
  changed_.NotifyAll();
}

void ResultFetches::BeginDrain() {
  MutexLock lock(mutex_);
  draining_ = true;
}

void ResultFetches::WaitUntilFetched(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  MutexLock lock(mutex_);
  while (true) {
    const absl::Time now = absl::Now();
    DropOldLocked(now);
    if (told_.empty() || now >= end) return;
    absl::Time next = end;
    for (const auto& [mask, until] : told_) next = std::min(next, until);
    changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(next - now));
  }
}

void ResultFetches::DropOldLocked(absl::Time now) {
  std::erase_if(told_, [now](const auto& entry) { return entry.second <= now; });
}

}  // namespace sparsefw::server
