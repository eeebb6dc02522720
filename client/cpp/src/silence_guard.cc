#include "client/cpp/src/silence_guard.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace sparsefw::client::internal {

SilenceGuard::SilenceGuard(absl::Duration limit, grpc::ClientContext* context)
    : limit_(limit), context_(context), give_up_(absl::Now() + limit) {
  thread_ = std::thread([this] { Watch(); });
}

SilenceGuard::~SilenceGuard() {
  {
    MutexLock lock(mutex_);
    end_ = true;
    ended_.NotifyAll();
  }
  thread_.join();
}

void SilenceGuard::Heard() {
  MutexLock lock(mutex_);
  give_up_ = absl::Now() + limit_;
}

bool SilenceGuard::silent() const {
  MutexLock lock(mutex_);
  return silent_;
}

void SilenceGuard::Watch() {
  {
    MutexLock lock(mutex_);
    while (!end_) {
      // A limit of for ever must fit the clock's nanoseconds.
      const absl::Duration left = std::min(give_up_ - absl::Now(), absl::Hours(24));
      if (left <= absl::ZeroDuration()) break;
      ended_.WaitFor(mutex_, absl::ToChronoNanoseconds(left));
    }
    if (end_) return;
    silent_ = true;
  }
  context_->TryCancel();
}

}  // namespace sparsefw::client::internal
