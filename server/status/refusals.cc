#include "server/status/refusals.h"

#include "server/metrics/labels.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {

void Refusals::Ended(std::string_view method, const absl::Status& status, absl::Time now) {
  if (status.ok() || absl::IsCancelled(status)) return;
  Refusal refusal = {now, std::string(method), CodeName(status.code()), ReasonOf(status)};
  MutexLock lock(mutex_);
  if (!latest_.empty()) {
    Refusal& last = latest_.front();
    if (last.method == refusal.method && last.code == refusal.code &&
        last.reason == refusal.reason) {
      last.time = now;
      ++last.count;
      return;
    }
  }
  latest_.push_front(std::move(refusal));
  if (latest_.size() > kKept) latest_.pop_back();
}

std::vector<Refusal> Refusals::Latest() const {
  MutexLock lock(mutex_);
  return {latest_.begin(), latest_.end()};
}

}  // namespace sparsefw::server
