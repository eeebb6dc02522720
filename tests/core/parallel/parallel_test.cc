#include "core/src/parallel/parallel.h"

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace sparsefw {
namespace {

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
  const Arena arena(2);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<int64_t> input(1000, repeat);
    std::vector<int64_t> sums(10);
    arena.Execute([&] {
      ParallelFor(10, 1, [&](int64_t outer, int64_t) {
        std::vector<int64_t> parts(10);
        ParallelFor(100, 10, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            parts[static_cast<size_t>(begin / 10)] += input[static_cast<size_t>(100 * outer + i)];
          }
        });
        for (const int64_t part : parts) sums[static_cast<size_t>(outer)] += part;
      });
    });
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
TEST(ArenaTest, StopEndsTheBodyAtABlock) {
  StopSignal stop;
  const Arena arena(2);
  std::atomic<int> blocks = 0;
  bool beyond = false;
  EXPECT_FALSE(arena.Execute(&stop, [&] {
    ParallelFor(10'000, 1, [&](int64_t, int64_t) {
      if (++blocks == 5) stop.Request();
    });
    beyond = true;
  }));
  EXPECT_FALSE(beyond);
  EXPECT_LT(blocks, 10);
  EXPECT_FALSE(arena.Execute(&stop, [&] {
    ParallelFor(1, 1, [](int64_t, int64_t) { ADD_FAILURE() << "a single block"; });
  }));
}

TEST(ArenaTest, WithoutAStopEverythingRuns) {
  StopSignal stop;
  const Arena arena(2);
  int bodies = 0;
  const auto body = [&] { ParallelFor(4, 4, [&](int64_t, int64_t) { ++bodies; }); };
  EXPECT_TRUE(arena.Execute(&stop, body));
  EXPECT_TRUE(arena.Execute(nullptr, body));
  // A signal belongs to the body that it was given to.
  EXPECT_TRUE(arena.Execute(&stop, [&] { arena.Execute(nullptr, [&] { stop.Request(); }); }));
  arena.Execute(body);
  body();
  EXPECT_EQ(bodies, 4);
}

TEST(ArenaTest, LimitsTheThreads) {
  EXPECT_EQ(Arena(1).threads(), 1);
  EXPECT_EQ(Arena(3).threads(), 3);
  EXPECT_GE(Arena(0).threads(), 1);
  std::atomic<int> running = 0;
  Arena(1).Execute([&] {
    ParallelFor(64, 1, [&](int64_t, int64_t) {
      EXPECT_EQ(++running, 1);
      --running;
    });
  });
}

}  // namespace
}  // namespace sparsefw
