#include "server/rpc/runtime/executor.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/rpc/runtime/rpc_context.h"
#include "server/rpc/runtime/strand.h"
#include "server/rpc/runtime/timer.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

using Entry = Executor::Entry;

// Work in one piece.
template <typename Function>
Executor::Work Once(Function function) {
  return [function = std::move(function)] {
    function();
    return false;
  };
}

// Holds a thread from its construction until Open.
class Gate {
 public:
  Gate(Executor& executor, const std::string& caller) {
    EXPECT_TRUE(executor
                    .Post(caller, Entry::kNew, Once([this, opened = opened_.get_future().share()] {
                            begun_.set_value();  // from here on the gate may be gone
                            opened.wait();
                          }))
                    .ok());
    begun_.get_future().wait();
  }
  void Open() { opened_.set_value(); }

 private:
  std::promise<void> begun_;
  std::promise<void> opened_;
};

// An executor of which one thread is left, which a gate holds: what is posted meanwhile runs
// in an order that does not depend on the threads.
class ExecutorTurnsTest : public testing::Test {
 protected:
  Executor::TaskId Post(const std::string& caller, const std::string& name) {
    const auto id = executor_.Post(caller, Entry::kNew, Once([this, name] { ran_ += name; }));
    EXPECT_TRUE(id.ok());
    return id.value_or(0);
  }
  // In three pieces.
  void PostLong(const std::string& caller, const std::string& name) {
    EXPECT_TRUE(executor_
                    .Post(caller, Entry::kNew,
                          [this, name, left = 3]() mutable {
                            ran_ += name;
                            return --left > 0;
                          })
                    .ok());
  }
  std::string Run() {
    std::promise<void> ended;
    EXPECT_TRUE(executor_
                    .Post("last", Entry::kNew,
                          [this, &ended] {
                            // The callers' turns come first.
                            if (executor_.usage().queued > 0) return true;
                            ended.set_value();
                            return false;
                          })
                    .ok());
    gate_.Open();
    ended.get_future().wait();
    return ran_;
  }

  std::string ran_;  // used by the one thread, and after it
  Executor executor_{1};
  Gate other_{executor_, "other"};
  Gate gate_{executor_, "gate"};

  void TearDown() override { other_.Open(); }
};

TEST_F(ExecutorTurnsTest, CallersAreServedInTurn) {
  for (const char* name : {"1", "2", "3"}) Post("eve", name);
  Post("bob", "b");
  Post("carol", "c");
  EXPECT_EQ(Run(), "1bc23");
}

TEST_F(ExecutorTurnsTest, LongWorkYieldsToOtherCallersAndKeepsItsPlaceBeforeItsOwn) {
  PostLong("eve", "e");
  Post("eve", "2");
  Post("bob", "b");
  Post("bob", "c");
  EXPECT_EQ(Run(), "ebece2");
}

TEST_F(ExecutorTurnsTest, WithdrawnWorkIsNotBegunAndCostsNoTurn) {
  const auto held = std::make_shared<int>(0);
  const auto first = executor_.Post("eve", Entry::kNew, Once([held] { FAIL(); }));
  Executor::TaskId second = 0;
  ASSERT_TRUE(first.ok());
  for (int i = 0; i < 100; ++i) second = Post("eve", "e");
  Post("bob", "b");
  executor_.Withdraw("eve", *first);
  EXPECT_EQ(held.use_count(), 1) << "what it holds goes at once";
  for (Executor::TaskId id = *first; id <= second; ++id) executor_.Withdraw("eve", id);
  const ExecutorGauges usage = executor_.usage();
  EXPECT_EQ(usage.queued, 1);
  EXPECT_EQ(usage.withdrawn, 101);
  EXPECT_EQ(usage.begun, 2) << "the gates";
  EXPECT_EQ(Run(), "b");
}

TEST_F(ExecutorTurnsTest, OnlyItsCallerWithdrawsWork) {
  const Executor::TaskId id = Post("eve", "e");
  executor_.Withdraw("bob", id);
  Post("bob", "b");
  executor_.Withdraw("bob", id);
  EXPECT_EQ(Run(), "eb");
}

TEST_F(ExecutorTurnsTest, CountsWhatWaits) {
  EXPECT_EQ(executor_.usage().queued, 0);
  EXPECT_EQ(executor_.usage().oldest_wait, absl::ZeroDuration());
  Post("eve", "e");
  Post("bob", "b");
  EXPECT_EQ(executor_.usage().queued, 2);
  const auto wait = executor_.usage().oldest_wait;
  EXPECT_GT(wait, absl::ZeroDuration());
  EXPECT_GT(executor_.usage().oldest_wait, wait);
  Run();
  EXPECT_EQ(executor_.usage().queued, 0);
}

TEST(ExecutorTest, RunsEverythingBeforeItEnds) {
  std::atomic<int> done{0};
  {
    Executor executor(3);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(executor
                      .Post(i % 2 == 0 ? "a" : "b", Entry::kNew,
                            [&done, left = 2]() mutable {
                              ++done;
                              return --left > 0;
                            })
                      .ok());
    }
  }
  EXPECT_EQ(done, 2000);
}

TEST(ExecutorTest, WorkOfOneCallerNeverHoldsAllThreads) {
  Executor executor(2);
  Gate first(executor, "eve");
  Gate second(executor, "eve");
  std::atomic<bool> third{false};
  ASSERT_TRUE(executor.Post("eve", Entry::kNew, Once([&third] { third = true; })).ok());
  std::promise<void> ran;
  ASSERT_TRUE(executor.Post("bob", Entry::kNew, Once([&ran] { ran.set_value(); })).ok());
  ran.get_future().wait();
  EXPECT_FALSE(third);
  first.Open();
  second.Open();
}

TEST(ExecutorTest, WithdrawingWhatHasBegunOrIsNotThereChangesNothing) {
  Executor executor(1);
  executor.Withdraw("nobody", 1);
  std::promise<void> begun;
  std::promise<void> go;
  std::promise<void> ended;
  int pieces = 0;
  const auto id = executor.Post("eve", Entry::kNew, [&] {
    if (++pieces == 1) {
      begun.set_value();
      go.get_future().wait();
      return true;
    }
    ended.set_value();
    return false;
  });
  ASSERT_TRUE(id.ok());
  begun.get_future().wait();
  executor.Withdraw("eve", *id);
  go.set_value();
  ended.get_future().wait();
  EXPECT_EQ(executor.usage().withdrawn, 0);
}

TEST(ExecutorTest, RefusesNewWorkBeyondTheBoundOfItsCaller) {
  std::atomic<int> ran{0};
  const auto count = [&ran] { ++ran; };
  {
    Executor executor(1, 2);
    Gate gate(executor, "eve");
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(executor.Post("eve", Entry::kNew, Once(count)).ok());
    const absl::Status refused = executor.Post("eve", Entry::kNew, Once([] { FAIL(); })).status();
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_EQ(ReasonOf(refused), "TOO_MANY_CALLS");
    EXPECT_EQ(ReasonMetadataOf(refused).count("retry_delay_ms"), 1U);
    // Neither that of another caller nor of a call that was let in.
    EXPECT_TRUE(executor.Post("bob", Entry::kNew, Once(count)).ok());
    const auto follows = executor.Post("eve", Entry::kFollows, Once(count));
    ASSERT_TRUE(follows.ok());
    // What is withdrawn makes room; what follows has taken none.
    executor.Withdraw("eve", *follows);
    EXPECT_FALSE(executor.Post("eve", Entry::kNew, Once([] { FAIL(); })).ok());
    executor.Withdraw("eve", *follows - 3);
    EXPECT_TRUE(executor.Post("eve", Entry::kNew, Once(count)).ok());
    gate.Open();
  }
  EXPECT_EQ(ran, 3);
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
  Gate gate(executor, "other");
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
  gate.Open();
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

TEST(StrandTest, MovesToAnotherExecutorInOrder) {
  std::string order;
  Executor first(1);
  Executor second(1);
  const auto strand = std::make_shared<Strand>(&first);
  strand->SetCaller("eve");
  std::promise<void> ended;
  strand->Post([&] {
    order += '1';
    strand->MoveTo(&second);
  });
  strand->Post([&] { order += '2'; });
  strand->Post([&] {
    order += '3';
    ended.set_value();
  });
  ended.get_future().wait();
  EXPECT_EQ(order, "123");
  EXPECT_GE(second.usage().begun, 2);
}

// A stream's work moves on to threads that would be gone by then.
TEST(CallThreadsTest, AllLiveUntilNoneHasWork) {
  std::atomic<bool> ran = false;
  {
    CallThreads threads(1);
    const auto strand = std::make_shared<Strand>(&threads.jobs);
    strand->SetCaller("a");
    strand->Post([&threads, strand = strand.get()] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the end begins meanwhile
      strand->MoveTo(&threads.data);
    });
    strand->Post([&ran] { ran = true; });
  }
  EXPECT_TRUE(ran);
}

TEST(TimerTest, RunsInOrderOfTime) {
  std::promise<void> done, both_are_there;
  std::vector<int> order;
  Timer timer;
  timer.After(std::chrono::milliseconds(0), [&] { both_are_there.get_future().wait(); });
  timer.After(std::chrono::milliseconds(20), [&] {
    order.push_back(2);
    done.set_value();
  });
  // Before the other, however late this call comes.
  timer.After(-std::chrono::hours(1), [&] { order.push_back(1); });
  both_are_there.set_value();
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

// A call may ask for a heartbeat while the server ends.
TEST(TimerTest, StoppedItDropsWhatComesLater) {
  const auto held = std::make_shared<int>(1);
  Timer timer;
  timer.After(std::chrono::hours(1), [held] {});
  timer.Stop();
  timer.After(std::chrono::nanoseconds(0), [held] { ADD_FAILURE(); });
  EXPECT_EQ(held.use_count(), 1);
  timer.Stop();
}

}  // namespace
}  // namespace sparsefw::server
