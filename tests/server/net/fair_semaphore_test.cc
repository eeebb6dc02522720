#include "server/net/fair_semaphore.h"

#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;

// Keeps what it is granted, and in which order.
class Waiters {
 public:
  FairSemaphore::OnGranted Keep(int name) {
    return [this, name](FairSemaphore::Reservation reservation) {
      order_.push_back(name);
      held_.push_back(std::move(reservation));
    };
  }
  // Not held_.clear(): giving back calls others, who add to held_.
  void GiveBackAll() { std::exchange(held_, {}).clear(); }

  std::vector<int> order_;
  std::vector<FairSemaphore::Reservation> held_;
};

// Nothing when the bytes are not granted at once.
std::optional<FairSemaphore::Reservation> TryAcquire(FairSemaphore& semaphore, int64_t bytes) {
  std::optional<FairSemaphore::Reservation> granted;
  const auto waiter = semaphore.Acquire(bytes, [&granted](FairSemaphore::Reservation reservation) {
    granted = std::move(reservation);
  });
  if (waiter != FairSemaphore::kGranted) semaphore.Cancel(waiter);
  return granted;
}

TEST(FairSemaphoreTest, GrantsAtOnceWhatIsFree) {
  FairSemaphore semaphore(100);
  Waiters waiters;
  EXPECT_EQ(semaphore.Acquire(60, waiters.Keep(1)), FairSemaphore::kGranted);
  EXPECT_THAT(waiters.order_, ElementsAre(1));
  EXPECT_EQ(semaphore.used(), 60);
  EXPECT_EQ(semaphore.limit(), 100);
  EXPECT_FALSE(TryAcquire(semaphore, 41).has_value());
  EXPECT_TRUE(TryAcquire(semaphore, 40).has_value());
  waiters.GiveBackAll();
  EXPECT_EQ(semaphore.used(), 0);
}

TEST(FairSemaphoreTest, WaitersAreServedInOrder) {
  FairSemaphore semaphore(100);
  Waiters waiters;
  auto first = TryAcquire(semaphore, 100);
  ASSERT_TRUE(first.has_value());
  EXPECT_NE(semaphore.Acquire(70, waiters.Keep(1)), FairSemaphore::kGranted);
  EXPECT_NE(semaphore.Acquire(40, waiters.Keep(2)), FairSemaphore::kGranted);
  EXPECT_NE(semaphore.Acquire(10, waiters.Keep(3)), FairSemaphore::kGranted);
  EXPECT_EQ(semaphore.waiting(), 3);
  EXPECT_THAT(waiters.order_, ElementsAre());

  first.reset();
  EXPECT_THAT(waiters.order_, ElementsAre(1)) << "the third must not overtake the second";
  EXPECT_EQ(semaphore.used(), 70);
  EXPECT_FALSE(TryAcquire(semaphore, 1).has_value()) << "nor must anybody else";
  waiters.GiveBackAll();
  EXPECT_THAT(waiters.order_, ElementsAre(1, 2, 3));
  EXPECT_EQ(semaphore.waiting(), 0);
}

TEST(FairSemaphoreTest, LargerThanTheLimitIsGrantedAlone) {
  FairSemaphore semaphore(100);
  Waiters waiters;
  auto small = TryAcquire(semaphore, 1);
  semaphore.Acquire(250, waiters.Keep(1));
  EXPECT_THAT(waiters.order_, ElementsAre());
  small.reset();
  EXPECT_THAT(waiters.order_, ElementsAre(1));
  EXPECT_EQ(semaphore.used(), 250);
  EXPECT_FALSE(TryAcquire(semaphore, 1).has_value());
  waiters.GiveBackAll();
  EXPECT_EQ(semaphore.used(), 0);
}

TEST(FairSemaphoreTest, CancelledWaitersAreNotCalled) {
  FairSemaphore semaphore(100);
  Waiters waiters;
  auto all = TryAcquire(semaphore, 100);
  const auto first = semaphore.Acquire(10, waiters.Keep(1));
  const auto second = semaphore.Acquire(10, waiters.Keep(2));
  EXPECT_TRUE(semaphore.Cancel(first));
  EXPECT_FALSE(semaphore.Cancel(first));
  all.reset();
  EXPECT_THAT(waiters.order_, ElementsAre(2));
  EXPECT_FALSE(semaphore.Cancel(second)) << "it has been called";
  EXPECT_FALSE(semaphore.Cancel(FairSemaphore::kGranted));
}

TEST(FairSemaphoreTest, CancellingTheHeadLetsTheOthersPass) {
  FairSemaphore semaphore(100);
  Waiters waiters;
  auto most = TryAcquire(semaphore, 90);
  const auto large = semaphore.Acquire(50, waiters.Keep(1));
  semaphore.Acquire(10, waiters.Keep(2));
  EXPECT_THAT(waiters.order_, ElementsAre());
  EXPECT_TRUE(semaphore.Cancel(large));
  EXPECT_THAT(waiters.order_, ElementsAre(2));
}

// A callback that gives its bytes back at once must not recurse into the next.
TEST(FairSemaphoreTest, LongQueuesDoNotRecurse) {
  FairSemaphore semaphore(1);
  constexpr int kWaiters = 200'000;
  int called = 0;
  int depth = 0;
  auto all = TryAcquire(semaphore, 1);
  for (int i = 0; i < kWaiters; ++i) {
    semaphore.Acquire(1, [&](FairSemaphore::Reservation reservation) {
      ++called;
      EXPECT_EQ(++depth, 1);
      reservation.Release();
      --depth;
    });
  }
  all.reset();
  EXPECT_EQ(called, kWaiters);
  EXPECT_EQ(semaphore.used(), 0);
}

TEST(FairSemaphoreTest, CallbacksMayAskAgain) {
  FairSemaphore semaphore(10);
  Waiters waiters;
  auto all = TryAcquire(semaphore, 10);
  semaphore.Acquire(4, [&](FairSemaphore::Reservation reservation) {
    waiters.held_.push_back(std::move(reservation));
    waiters.order_.push_back(1);
    semaphore.Acquire(7, waiters.Keep(2));
  });
  all.reset();
  EXPECT_THAT(waiters.order_, ElementsAre(1));
  EXPECT_EQ(semaphore.waiting(), 1);
  waiters.GiveBackAll();
  EXPECT_THAT(waiters.order_, ElementsAre(1, 2));
}

TEST(FairSemaphoreTest, ThreadsNeverHoldMoreThanTheLimit) {
  static constexpr int64_t kLimit = 64;
  constexpr int kThreads = 4;
  constexpr int kRequests = 3'000;
  FairSemaphore semaphore(kLimit);
  std::atomic<int64_t> held{0};
  std::atomic<int> granted{0};
  std::atomic<int> cancelled{0};
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < kThreads; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      // Given back by this thread later: mostly not by the one that was called.
      Mutex mutex;
      CondVar changed;
      std::vector<FairSemaphore::Reservation> mine;
      int open = 0;
      for (int i = 0; i < kRequests; ++i) {
        const auto bytes = static_cast<int64_t>(1 + random() % 30);
        {
          MutexLock lock(mutex);
          ++open;
        }
        const auto id = semaphore.Acquire(bytes, [&](FairSemaphore::Reservation reservation) {
          EXPECT_LE(held.fetch_add(reservation.units()) + reservation.units(), kLimit);
          ++granted;
          MutexLock lock(mutex);
          mine.push_back(std::move(reservation));
          --open;
          changed.NotifyOne();  // under the lock: the waiter may be gone after it
        });
        if (id != FairSemaphore::kGranted && random() % 4 == 0 && semaphore.Cancel(id)) {
          ++cancelled;
          MutexLock lock(mutex);
          --open;
        }
        std::vector<FairSemaphore::Reservation> taken;
        {
          MutexLock lock(mutex);
          taken.swap(mine);
        }
        for (auto& reservation : taken) {
          held -= reservation.units();
          reservation.Release();
        }
      }
      // The rest comes when the other threads give back theirs.
      while (true) {
        std::vector<FairSemaphore::Reservation> taken;
        {
          MutexLock lock(mutex);
          while (open > 0 && mine.empty()) changed.Wait(mutex);
          if (mine.empty()) break;
          taken.swap(mine);
        }
        for (auto& reservation : taken) {
          held -= reservation.units();
          reservation.Release();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(granted + cancelled, kThreads * kRequests);
  EXPECT_EQ(semaphore.used(), 0);
  EXPECT_EQ(semaphore.waiting(), 0);
}

TEST(FairSemaphoreTest, WaitersComeInOrderAndWaitUntilItMayGrant) {
  bool room = true;
  FairSemaphore turns(2, [&room] { return room; });
  std::string order;
  std::vector<FairSemaphore::Reservation> held;
  for (const char name : {'a', 'b', 'c', 'd'}) {
    turns.Acquire(1, [&order, &held, name](FairSemaphore::Reservation turn) {
      order += name;
      held.push_back(std::move(turn));
    });
  }
  EXPECT_EQ(order, "ab");
  held[0].Release();
  EXPECT_EQ(order, "abc");
  room = false;
  held[1].Release();
  EXPECT_EQ(order, "abc");
  room = true;
  turns.Resume();
  EXPECT_EQ(order, "abcd");
}

TEST(FairSemaphoreTest, WhatIsCancelledIsForgotten) {
  FairSemaphore turns(1);
  auto stream = std::make_shared<int>(0);
  std::optional<FairSemaphore::Reservation> held = TryAcquire(turns, 1);
  const FairSemaphore::WaiterId id =
      turns.Acquire(1, [stream](const FairSemaphore::Reservation&) { ++*stream; });
  EXPECT_EQ(stream.use_count(), 2);
  EXPECT_TRUE(turns.Cancel(id));
  EXPECT_EQ(stream.use_count(), 1);
  EXPECT_FALSE(turns.Cancel(id));
  held.reset();
  EXPECT_EQ(*stream, 0);
}

// Streams that were closed while they waited give their turns back at once.
TEST(FairSemaphoreTest, ManyThatGiveBackAtOnceTakeNoStack) {
  bool room = false;
  FairSemaphore turns(1, [&room] { return room; });
  int begun = 0;
  constexpr int kStreams = 200000;
  for (int i = 0; i < kStreams; ++i) {
    turns.Acquire(1, [&begun](const FairSemaphore::Reservation&) { ++begun; });
  }
  room = true;
  turns.Resume();
  EXPECT_EQ(begun, kStreams);
}

}  // namespace
}  // namespace sparsefw::server
