#include "sparsefw/steady_time.h"

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace sparsefw {
namespace {

TEST(SteadyTimeTest, BeginsAtTheTimeOfDayAndNeverGoesBack) {
  const absl::Time before = absl::Now();
  absl::Time last = SteadyNow();
  EXPECT_GE(last, before - absl::Hours(1)) << "the time of day, but for steps of the clock since";
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = SteadyNow();
    EXPECT_GE(now, last);
    last = now;
  }
}

TEST(SteadyTimeTest, NothingExpiresEarlyWhenTheClockIsSet) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  EXPECT_EQ(ExpiryNow(now, now), now);
  EXPECT_EQ(ExpiryNow(now + absl::Hours(2), now), now) << "set ahead";
  EXPECT_EQ(ExpiryNow(now - absl::Hours(2), now), now - absl::Hours(2)) << "set back";
  const absl::Duration years = absl::Hours(24 * 365 * 50);
  EXPECT_EQ(ExpiryNow(now + years, now), now + years - absl::Hours(7 * 24))
      << "the clock was wrong at the start: expiry goes on after a week";
}

}  // namespace
}  // namespace sparsefw
