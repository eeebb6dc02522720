#include "server/jobs/clock.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace sparsefw::server {
namespace {

// The wall clock can be set during a wait, so a long wait checks it again.
constexpr absl::Duration kLongestWait = absl::Seconds(10);

class WallClock final : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }

  void WaitUntil(CondVar& condition, Mutex& mutex, absl::Time time) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (time == absl::InfiniteFuture()) {
      condition.Wait(mutex);
      return;
    }
    const absl::Duration wait = std::min(time - absl::Now(), kLongestWait);
    if (wait > absl::ZeroDuration()) condition.WaitFor(mutex, absl::ToChronoNanoseconds(wait));
  }
};

}  // namespace

Clock& RealClock() {
  static WallClock clock;
  return clock;
}

}  // namespace sparsefw::server
