#include "sparsefw/client/backoff.h"

#include "gtest/gtest.h"

namespace sparsefw::client {
namespace {

RetryOptions Options() {
  RetryOptions options;
  options.initial_backoff = absl::Milliseconds(100);
  options.max_backoff = absl::Seconds(1);
  options.multiplier = 2;
  options.give_up_after = absl::Seconds(30);
  return options;
}

TEST(BackoffTest, GrowsToTheMaximumWithinTheJitterBounds) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const absl::Time start = absl::UnixEpoch();
    Backoff backoff(Options(), start, seed);
    absl::Duration ideal = absl::Milliseconds(100);
    for (int i = 0; i < 8; ++i) {
      const auto delay = backoff.Next(start);
      ASSERT_TRUE(delay.has_value());
      EXPECT_GE(*delay, ideal / 2) << "seed " << seed << " attempt " << i;
      EXPECT_LE(*delay, ideal) << "seed " << seed << " attempt " << i;
      ideal = std::min(ideal * 2, absl::Seconds(1));
    }
  }
}

TEST(BackoffTest, JitterSpreadsClients) {
  Backoff one(Options(), absl::UnixEpoch(), 1);
  Backoff two(Options(), absl::UnixEpoch(), 2);
  EXPECT_NE(one.Next(absl::UnixEpoch()), two.Next(absl::UnixEpoch()));
}

TEST(BackoffTest, TotalTimeIsBounded) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const absl::Time start = absl::UnixEpoch();
    absl::Time now = start;
    Backoff backoff(Options(), now, seed);
    int attempts = 0;
    while (const auto delay = backoff.Next(now)) {
      now += *delay;
      ASSERT_LT(++attempts, 100);
    }
    EXPECT_EQ(now - start, absl::Seconds(30));  // the last attempt is at the very end
  }
}

TEST(BackoffTest, TheTimeOfAnAttemptIsNoWaiting) {
  const absl::Time start = absl::UnixEpoch();
  Backoff backoff(Options(), start, 7);
  const absl::Time later = start + absl::Hours(2);
  backoff.Postpone(later - start);
  EXPECT_TRUE(backoff.Next(later).has_value());
  EXPECT_FALSE(backoff.Next(later + absl::Seconds(30)).has_value());
}

TEST(BackoffTest, ProgressStartsOver) {
  const absl::Time start = absl::UnixEpoch();
  Backoff backoff(Options(), start, 7);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(backoff.Next(start).has_value());
  const absl::Time later = start + absl::Seconds(29);
  backoff.Reset(later);
  const auto delay = backoff.Next(later);
  ASSERT_TRUE(delay.has_value());
  EXPECT_LE(*delay, absl::Milliseconds(100));
  EXPECT_TRUE(backoff.Next(later + absl::Seconds(28)).has_value());
}

TEST(BackoffTest, TheServersDelayIsAFloor) {
  const absl::Time start = absl::UnixEpoch();
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Backoff backoff(Options(), start, seed);
    const auto delay = backoff.Next(start, absl::Seconds(3));
    ASSERT_TRUE(delay.has_value());
    EXPECT_GE(*delay, absl::Seconds(3));
    EXPECT_LE(*delay, absl::Milliseconds(3100));
  }
}

// With 10 s to retry and a server that asks for 9, an outage of a second was the end.
TEST(BackoffTest, ALongDelayIsCutAtTheTimeToGiveUp) {
  const absl::Time start = absl::UnixEpoch();
  Backoff backoff(Options(), start, 3);
  EXPECT_EQ(backoff.Next(start, absl::Seconds(31)), absl::Seconds(30));
  EXPECT_EQ(backoff.Next(start + absl::Seconds(29), absl::Seconds(5)), absl::Seconds(1));
  EXPECT_FALSE(backoff.Next(start + absl::Seconds(30)).has_value());
}

}  // namespace
}  // namespace sparsefw::client
