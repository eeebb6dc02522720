#include "server/tensors/store/budget.h"

#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace sparsefw::server {
namespace {

TEST(Budget, HoldsBytesAsLongAsTheReservation) {
  const auto budget = Budget::Create(100);
  {
    auto first = budget->TryReserve(60);
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(budget->used(), 60);
    EXPECT_FALSE(budget->TryReserve(41).has_value());
    EXPECT_EQ(budget->used(), 60) << "a refusal takes nothing";
    auto second = budget->TryReserve(40);
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(budget->used(), 100);
    Budget::Reservation moved = *std::move(second);
    second.reset();
    EXPECT_EQ(budget->used(), 100) << "moving keeps the bytes";
    first->ShrinkTo(10);
    EXPECT_EQ(budget->used(), 50);
    first->ShrinkTo(30);
    EXPECT_EQ(first->amount(), 10) << "shrinking never grows";
    moved = *std::move(first);
    EXPECT_EQ(budget->used(), 10) << "assigning gives back what was there";
  }
  EXPECT_EQ(budget->used(), 0);
}

TEST(Budget, HugeRequestsDoNotWrapAround) {
  const auto budget = Budget::Create(std::numeric_limits<int64_t>::max());
  const auto most = budget->TryReserve(std::numeric_limits<int64_t>::max() - 1);
  ASSERT_TRUE(most.has_value());
  EXPECT_FALSE(budget->TryReserve(2).has_value());
  EXPECT_FALSE(budget->TryReserve(std::numeric_limits<int64_t>::max()).has_value());
  EXPECT_TRUE(budget->TryReserve(1).has_value());
}

TEST(Budget, ReservationsKeepTheBudgetAlive) {
  std::optional<Budget::Reservation> reservation = Budget::Create(10)->TryReserve(5);
  ASSERT_TRUE(reservation.has_value());
  EXPECT_EQ(reservation->amount(), 5);
}

TEST(Budget, IsNeverExceededByThreads) {
  static constexpr int64_t kLimit = 1000;
  const auto budget = Budget::Create(kLimit);
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&budget, seed] {
      std::mt19937_64 random(seed);
      std::vector<Budget::Reservation> held;
      for (int i = 0; i < 5'000; ++i) {
        if (auto got = budget->TryReserve(static_cast<int64_t>(random() % 400))) {
          held.push_back(*std::move(got));
        }
        EXPECT_LE(budget->used(), kLimit);
        if (held.size() > 3 || (random() & 1U) != 0) held.clear();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget->used(), 0);
}

TEST(Budget, APartOfAReservationLivesOnItsOwn) {
  const auto budget = Budget::Create(10);
  auto whole = budget->TryReserve(8);
  ASSERT_TRUE(whole);
  std::optional<Budget::Reservation> part = whole->Split(3);
  EXPECT_EQ(whole->amount(), 5);
  EXPECT_EQ(part->amount(), 3);
  EXPECT_EQ(budget->used(), 8);
  whole.reset();
  EXPECT_EQ(budget->used(), 3);
  part.reset();
  EXPECT_EQ(budget->used(), 0);
}

}  // namespace
}  // namespace sparsefw::server
