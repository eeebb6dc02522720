#include "server/tensors/uploads/staging_budget.h"

#include <atomic>
#include <memory>
#include <optional>
#include <random>
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
  StagingBudget::OnGranted Keep(int name) {
    return [this, name](StagingBudget::Reservation reservation) {
      order_.push_back(name);
      held_.push_back(std::move(reservation));
    };
  }
  // Not held_.clear(): giving back calls others, who add to held_.
  void GiveBackAll() { std::exchange(held_, {}).clear(); }

  std::vector<int> order_;
  std::vector<StagingBudget::Reservation> held_;
};

// Nothing when the bytes are not granted at once.
std::optional<StagingBudget::Reservation> TryAcquire(StagingBudget& budget, int64_t bytes) {
  std::optional<StagingBudget::Reservation> granted;
  const auto waiter = budget.Acquire(bytes, [&granted](StagingBudget::Reservation reservation) {
    granted = std::move(reservation);
  });
  if (waiter != StagingBudget::kGranted) budget.Cancel(waiter);
  return granted;
}

TEST(StagingBudget, GrantsAtOnceWhatIsFree) {
  StagingBudget budget(100);
  Waiters waiters;
  EXPECT_EQ(budget.Acquire(60, waiters.Keep(1)), StagingBudget::kGranted);
  EXPECT_THAT(waiters.order_, ElementsAre(1));
  EXPECT_EQ(budget.used(), 60);
  EXPECT_EQ(budget.limit(), 100);
  EXPECT_FALSE(TryAcquire(budget, 41).has_value());
  EXPECT_TRUE(TryAcquire(budget, 40).has_value());
  waiters.GiveBackAll();
  EXPECT_EQ(budget.used(), 0);
}

TEST(StagingBudget, WaitersAreServedInOrder) {
  StagingBudget budget(100);
  Waiters waiters;
  auto first = TryAcquire(budget, 100);
  ASSERT_TRUE(first.has_value());
  EXPECT_NE(budget.Acquire(70, waiters.Keep(1)), StagingBudget::kGranted);
  EXPECT_NE(budget.Acquire(40, waiters.Keep(2)), StagingBudget::kGranted);
  EXPECT_NE(budget.Acquire(10, waiters.Keep(3)), StagingBudget::kGranted);
  EXPECT_EQ(budget.waiting(), 3);
  EXPECT_THAT(waiters.order_, ElementsAre());

  first.reset();
  EXPECT_THAT(waiters.order_, ElementsAre(1)) << "the third must not overtake the second";
  EXPECT_EQ(budget.used(), 70);
  EXPECT_FALSE(TryAcquire(budget, 1).has_value()) << "nor must anybody else";
  waiters.GiveBackAll();
  EXPECT_THAT(waiters.order_, ElementsAre(1, 2, 3));
  EXPECT_EQ(budget.waiting(), 0);
}

TEST(StagingBudget, LargerThanTheLimitIsGrantedAlone) {
  StagingBudget budget(100);
  Waiters waiters;
  auto small = TryAcquire(budget, 1);
  budget.Acquire(250, waiters.Keep(1));
  EXPECT_THAT(waiters.order_, ElementsAre());
  small.reset();
  EXPECT_THAT(waiters.order_, ElementsAre(1));
  EXPECT_EQ(budget.used(), 250);
  EXPECT_FALSE(TryAcquire(budget, 1).has_value());
  waiters.GiveBackAll();
  EXPECT_EQ(budget.used(), 0);
}

TEST(StagingBudget, CancelledWaitersAreNotCalled) {
  StagingBudget budget(100);
  Waiters waiters;
  auto all = TryAcquire(budget, 100);
  const auto first = budget.Acquire(10, waiters.Keep(1));
  const auto second = budget.Acquire(10, waiters.Keep(2));
  EXPECT_TRUE(budget.Cancel(first));
  EXPECT_FALSE(budget.Cancel(first));
  all.reset();
  EXPECT_THAT(waiters.order_, ElementsAre(2));
  EXPECT_FALSE(budget.Cancel(second)) << "it has been called";
  EXPECT_FALSE(budget.Cancel(StagingBudget::kGranted));
}

TEST(StagingBudget, CancellingTheHeadLetsTheOthersPass) {
  StagingBudget budget(100);
  Waiters waiters;
  auto most = TryAcquire(budget, 90);
  const auto large = budget.Acquire(50, waiters.Keep(1));
  budget.Acquire(10, waiters.Keep(2));
  EXPECT_THAT(waiters.order_, ElementsAre());
  EXPECT_TRUE(budget.Cancel(large));
  EXPECT_THAT(waiters.order_, ElementsAre(2));
}

// A callback that gives its bytes back at once must not recurse into the next.
TEST(StagingBudget, LongQueuesDoNotRecurse) {
  StagingBudget budget(1);
  constexpr int kWaiters = 200'000;
  int called = 0;
  int depth = 0;
  auto all = TryAcquire(budget, 1);
  for (int i = 0; i < kWaiters; ++i) {
    budget.Acquire(1, [&](StagingBudget::Reservation reservation) {
      ++called;
      EXPECT_EQ(++depth, 1);
      reservation.Release();
      --depth;
    });
  }
  all.reset();
  EXPECT_EQ(called, kWaiters);
  EXPECT_EQ(budget.used(), 0);
}

TEST(StagingBudget, CallbacksMayAskAgain) {
  StagingBudget budget(10);
  Waiters waiters;
  auto all = TryAcquire(budget, 10);
  budget.Acquire(4, [&](StagingBudget::Reservation reservation) {
    waiters.held_.push_back(std::move(reservation));
    waiters.order_.push_back(1);
    budget.Acquire(7, waiters.Keep(2));
  });
  all.reset();
  EXPECT_THAT(waiters.order_, ElementsAre(1));
  EXPECT_EQ(budget.waiting(), 1);
  waiters.GiveBackAll();
  EXPECT_THAT(waiters.order_, ElementsAre(1, 2));
}

TEST(StagingBudget, ThreadsNeverHoldMoreThanTheLimit) {
  static constexpr int64_t kLimit = 64;
  constexpr int kThreads = 4;
  constexpr int kRequests = 3'000;
  StagingBudget budget(kLimit);
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
      std::vector<StagingBudget::Reservation> mine;
      int open = 0;
      for (int i = 0; i < kRequests; ++i) {
        const auto bytes = static_cast<int64_t>(1 + random() % 30);
        {
          MutexLock lock(mutex);
          ++open;
        }
        const auto id = budget.Acquire(bytes, [&](StagingBudget::Reservation reservation) {
          EXPECT_LE(held.fetch_add(reservation.bytes()) + reservation.bytes(), kLimit);
          ++granted;
          MutexLock lock(mutex);
          mine.push_back(std::move(reservation));
          --open;
          changed.NotifyOne();  // under the lock: the waiter may be gone after it
        });
        if (id != StagingBudget::kGranted && random() % 4 == 0 && budget.Cancel(id)) {
          ++cancelled;
          MutexLock lock(mutex);
          --open;
        }
        std::vector<StagingBudget::Reservation> taken;
        {
          MutexLock lock(mutex);
          taken.swap(mine);
        }
        for (auto& reservation : taken) {
          held -= reservation.bytes();
          reservation.Release();
        }
      }
      // The rest comes when the other threads give back theirs.
      while (true) {
        std::vector<StagingBudget::Reservation> taken;
        {
          MutexLock lock(mutex);
          while (open > 0 && mine.empty()) changed.Wait(mutex);
          if (mine.empty()) break;
          taken.swap(mine);
        }
        for (auto& reservation : taken) {
          held -= reservation.bytes();
          reservation.Release();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(granted + cancelled, kThreads * kRequests);
  EXPECT_EQ(budget.used(), 0);
  EXPECT_EQ(budget.waiting(), 0);
}

}  // namespace
}  // namespace sparsefw::server
