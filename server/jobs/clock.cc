#include "server/jobs/clock.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "sparsefw/steady_time.h"

namespace sparsefw::server {
namespace {

// Times far ahead are beyond what a condition can wait for.
constexpr absl::Duration kLongestWait = absl::Hours(1);

class SystemClock final : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
  absl::Time SteadyNow() override { return sparsefw::SteadyNow(); }

  void WaitUntil(CondVar& condition, Mutex& mutex, absl::Time time) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (time == absl::InfiniteFuture()) {
      condition.Wait(mutex);
      return;
    }
    const absl::Duration wait = std::min(time - SteadyNow(), kLongestWait);
    if (wait > absl::ZeroDuration()) condition.WaitFor(mutex, absl::ToChronoNanoseconds(wait));
  }
};

}  // namespace

Clock& RealClock() {
  static SystemClock clock;
  return clock;
}

}  // namespace sparsefw::server
