#include "sparsefw/steady_time.h"

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"

namespace sparsefw {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Start {
  absl::Time wall = absl::Now();
  SteadyClock::time_point steady = SteadyClock::now();
};

}  // namespace

absl::Time SteadyNow() {
  static const Start start;
  return start.wall + absl::FromChrono(SteadyClock::now() - start.steady);
}

absl::Time ExpiryNow(absl::Time wall, absl::Time steady) {
  return wall - std::clamp(wall - steady, absl::ZeroDuration(), absl::Hours(7 * 24));
}

}  // namespace sparsefw
