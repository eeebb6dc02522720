#include "server/rpc/runtime/executor.h"

#include <atomic>
#include <future>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "server/rpc/runtime/timer.h"

namespace sparsefw::server {
namespace {

TEST(ExecutorTest, RunsEverythingBeforeItEnds) {
  std::atomic<int> done{0};
  {
    Executor executor(3);
    for (int i = 0; i < 1000; ++i) executor.Post([&done] { ++done; });
  }
  EXPECT_EQ(done, 1000);
}

TEST(ExecutorTest, OneBlockedThreadLeavesTheOthersToWork) {
  Executor executor(2);
  std::promise<void> release;
  std::promise<void> ran;
  executor.Post([&release] { release.get_future().wait(); });
  executor.Post([&ran] { ran.set_value(); });
  ran.get_future().wait();
  release.set_value();
}

TEST(StrandTest, KeepsItsOrderAndNeverRunsTwoTasksAtOnce) {
  std::vector<int> order;  // unguarded: the strand is the guard
  std::atomic<int> inside{0};
  {
    Executor executor(4);
    const auto strand = std::make_shared<Strand>(&executor);
    for (int i = 0; i < 2000; ++i) {
      strand->Post([&order, &inside, i] {
        EXPECT_EQ(++inside, 1);
        order.push_back(i);
        --inside;
      });
    }
  }
  ASSERT_EQ(order.size(), 2000U);
  for (int i = 0; i < 2000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(StrandTest, StrandsTakeTurnsOnOneThread) {
  Executor executor(1);
  const auto busy = std::make_shared<Strand>(&executor);
  const auto other = std::make_shared<Strand>(&executor);
  std::promise<void> posted;
  std::shared_future<void> go = posted.get_future().share();
  std::vector<char> order;
  busy->Post([go] { go.wait(); });
  for (int i = 0; i < 3; ++i) busy->Post([&order] { order.push_back('b'); });
  std::promise<void> ended;
  other->Post([&order] { order.push_back('o'); });
  busy->Post([&ended] { ended.set_value(); });
  posted.set_value();
  ended.get_future().wait();
  ASSERT_EQ(order.size(), 4U);
  EXPECT_EQ(order.front(), 'o') << "a busy strand kept the thread";
}

TEST(StrandTest, ATaskMayPostToItsOwnStrand) {
  Executor executor(2);
  const auto strand = std::make_shared<Strand>(&executor);
  std::promise<void> done;
  strand->Post([&] { strand->Post([&done] { done.set_value(); }); });
  done.get_future().wait();
}

TEST(TimerTest, RunsInOrderOfTime) {
  std::promise<void> done;
  std::vector<int> order;
  Timer timer;
  timer.After(std::chrono::milliseconds(20), [&] {
    order.push_back(2);
    done.set_value();
  });
  timer.After(std::chrono::milliseconds(5), [&] { order.push_back(1); });
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(TimerTest, LetsGoOfWhatHasNotRun) {
  const auto held = std::make_shared<int>(1);
  {
    Timer timer;
    timer.After(std::chrono::hours(1), [held] {});
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace sparsefw::server
