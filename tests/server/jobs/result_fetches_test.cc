#include "server/jobs/result_fetches.h"

#include <future>

#include "gtest/gtest.h"
#include "tests/server/jobs/fake_clock.h"

namespace sparsefw::server {
namespace {

constexpr absl::Duration kGrace = absl::Seconds(10);

class ResultFetchesTest : public ::testing::Test {
 protected:
  std::future<void> Wait(absl::Duration timeout) {
    return std::async(std::launch::async,
                      [this, end = clock_.Now() + timeout] { fetches_.WaitUntilFetched(end); });
  }
  FakeClock clock_;
  ResultFetches fetches_{kGrace, clock_};
};

TEST_F(ResultFetchesTest, NothingOutstandingIsNotWaitedFor) {
  fetches_.WaitUntilFetched(absl::InfiniteFuture());
  fetches_.Fetched("unknown");
  fetches_.Sending("mask");
  fetches_.NotSent("mask");
  fetches_.WaitUntilFetched(absl::InfiniteFuture());
}

TEST_F(ResultFetchesTest, EveryWatcherThatWasToldIsWaitedFor) {
  fetches_.Sending("mask");
  fetches_.Sending("mask");
  fetches_.Sending("other");
  auto waiting = Wait(absl::Hours(1));
  clock_.AwaitWaiter(clock_.Now() + kGrace);
  fetches_.Fetched("mask");
  fetches_.Fetched("other");
  clock_.AwaitWaiter(clock_.Now() + kGrace);
  EXPECT_EQ(waiting.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  fetches_.Fetched("mask");
  waiting.get();
}

TEST_F(ResultFetchesTest, AReadIsWaitedForUntilItsGraceIsOver) {
  fetches_.Sending("early");
  clock_.Advance(kGrace / 2);
  fetches_.Sending("late");
  auto waiting = Wait(absl::Hours(1));
  clock_.AwaitWaiter(clock_.Now() + kGrace / 2);
  clock_.Advance(kGrace / 2);
  clock_.AwaitWaiter(clock_.Now() + kGrace / 2);
  EXPECT_EQ(waiting.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  clock_.Advance(kGrace / 2);
  waiting.get();
}

TEST_F(ResultFetchesTest, TheWaitEndsAtItsEnd) {
  fetches_.Sending("mask");
  auto waiting = Wait(absl::Seconds(1));
  clock_.AwaitWaiter(clock_.Now() + absl::Seconds(1));
  clock_.Advance(absl::Seconds(1));
  waiting.get();
}

}  // namespace
}  // namespace sparsefw::server
