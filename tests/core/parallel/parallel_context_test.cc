#include "core/src/parallel/parallel_context.h"

#include <atomic>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::StatusIs;

TEST(ParallelForTest, CoversEveryIndexOnceInFixedBlocks) {
  for (const int64_t count : {1, 7, 8, 9, 1000}) {
    std::vector<int> visits(static_cast<size_t>(count));
    std::atomic<int64_t> blocks = 0;
    ParallelFor(count, 8, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(begin % 8, 0);
      EXPECT_EQ(end, std::min<int64_t>(count, begin + 8));
      for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      ++blocks;
    });
    EXPECT_EQ(visits, std::vector<int>(static_cast<size_t>(count), 1));
    EXPECT_EQ(blocks, (count + 7) / 8);
  }
}

TEST(ParallelForTest, NothingToDoCallsNothing) {
  ParallelFor(0, 4, [](int64_t, int64_t) { ADD_FAILURE(); });
}

TEST(ParallelForTest, NestsAndHandsDataOver) {
  // Under ThreadSanitizer this also shows that the loops order what they should.
  const ParallelContext context(2);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<int64_t> input(1000, repeat);
    std::vector<int64_t> sums(10);
    SPARSEFW_ASSERT_OK(context.Run([&] {
      ParallelFor(10, 1, [&](int64_t outer, int64_t) {
        std::vector<int64_t> parts(10);
        ParallelFor(100, 10, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            parts[static_cast<size_t>(begin / 10)] += input[static_cast<size_t>(100 * outer + i)];
          }
        });
        for (const int64_t part : parts) sums[static_cast<size_t>(outer)] += part;
      });
      return absl::OkStatus();
    }));
    EXPECT_EQ(sums, std::vector<int64_t>(10, 100 * repeat));
  }
}

TEST(ParallelForTest, WhatABodyThrowsReachesTheCaller) {
  EXPECT_THROW(ParallelFor(100, 1,
                           [](int64_t begin, int64_t) {
                             if (begin == 50) throw std::bad_alloc();
                           }),
               std::bad_alloc);
}

// The loop that is running when the signal comes, and every later one.
TEST(ParallelContextTest, AStopEndsTheBodyAtABlock) {
  StopSignal stop;
  const ParallelContext context(2, &stop);
  std::atomic<int> blocks = 0;
  bool beyond = false;
  EXPECT_THAT(context.Run([&] {
    ParallelFor(10'000, 1, [&](int64_t, int64_t) {
      if (++blocks == 5) stop.Request();
    });
    beyond = true;
    return absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_FALSE(beyond);
  EXPECT_LT(blocks, 10);
  EXPECT_TRUE(context.stopped());
  const auto no_block = [](int64_t) { ADD_FAILURE() << "a single block"; };
  EXPECT_THAT(context.ForEach(1, no_block), StatusIs(absl::StatusCode::kCancelled));
}

TEST(ParallelContextTest, ADeadlineEndsItAsAStopDoes) {
  for (const int limit : {0, 1, 7}) {
    int looks = 0;
    const ParallelContext context(1, nullptr, [&] { return ++looks > limit; });
    int calls = 0;
    EXPECT_THAT(context.ForEach(100, [&](int64_t) { ++calls; }),
                StatusIs(absl::StatusCode::kCancelled));
    EXPECT_EQ(calls, limit);
  }
}

// Also those that a block begins, on whatever thread it runs.
TEST(ParallelContextTest, AStopEndsNestedLoops) {
  StopSignal stop;
  const ParallelContext context(2, &stop);
  std::atomic<int> inner = 0;
  EXPECT_THAT(context.ForEach(2,
                              [&](int64_t) {
                                ParallelFor(10'000, 1, [&](int64_t, int64_t) {
                                  if (++inner == 50) stop.Request();
                                });
                              }),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_LT(inner, 60);
}

TEST(ParallelContextTest, AStopAfterTheLastBlockIsReportedToo) {
  StopSignal stop;
  const ParallelContext context(1, &stop);
  EXPECT_THAT(context.ForEach(1, [&](int64_t) { stop.Request(); }),
              StatusIs(absl::StatusCode::kCancelled));
}

TEST(ParallelContextTest, WithoutAStopEverythingRuns) {
  StopSignal stop;
  const ParallelContext limited(2, &stop);
  const ParallelContext unlimited(2);
  int bodies = 0;
  const auto body = [&] {
    ParallelFor(4, 4, [&](int64_t, int64_t) { ++bodies; });
    return absl::OkStatus();
  };
  SPARSEFW_EXPECT_OK(limited.Run(body));
  // A signal ends the loops of its own context only.
  EXPECT_THAT(limited.Run([&] {
    stop.Request();
    return unlimited.Run(body);
  }),
              StatusIs(absl::StatusCode::kCancelled));
  SPARSEFW_EXPECT_OK(unlimited.Run(body));
  SPARSEFW_EXPECT_OK(body());
  EXPECT_EQ(bodies, 4);
}

TEST(ParallelContextTest, ErrorsOfTheBodyComeFirst) {
  StopSignal stop;
  stop.Request();
  EXPECT_THAT(ParallelContext(1, &stop).Run([] { return absl::InternalError("broken"); }),
              StatusIs(absl::StatusCode::kInternal, "", "broken"));
}

TEST(ParallelContextTest, LimitsTheThreads) {
  EXPECT_EQ(ParallelContext(1).threads(), 1);
  EXPECT_EQ(ParallelContext(3).threads(), 3);
  EXPECT_GE(ParallelContext(0).threads(), 1);
  std::atomic<int> running = 0;
  SPARSEFW_ASSERT_OK(ParallelContext(1).ForEach(64, [&](int64_t) {
    EXPECT_EQ(++running, 1);
    --running;
  }));
}

}  // namespace
}  // namespace sparsefw
