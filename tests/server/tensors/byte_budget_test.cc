#include "server/tensors/store/byte_budget.h"

#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace sparsefw::server {
namespace {

TEST(ByteBudget, HoldsBytesAsLongAsTheReservation) {
  const auto budget = ByteBudget::Create(100);
  {
    auto first = budget->TryReserve(60);
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(budget->used(), 60);
    EXPECT_FALSE(budget->TryReserve(41).has_value());
    EXPECT_EQ(budget->used(), 60) << "a refusal takes nothing";
    auto second = budget->TryReserve(40);
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(budget->used(), 100);
    ByteBudget::Reservation moved = *std::move(second);
    second.reset();
    EXPECT_EQ(budget->used(), 100) << "moving keeps the bytes";
    first->ShrinkTo(10);
    EXPECT_EQ(budget->used(), 50);
    first->ShrinkTo(30);
    EXPECT_EQ(first->bytes(), 10) << "shrinking never grows";
    moved = *std::move(first);
    EXPECT_EQ(budget->used(), 10) << "assigning gives back what was there";
  }
  EXPECT_EQ(budget->used(), 0);
}

TEST(ByteBudget, HugeRequestsDoNotWrapAround) {
  const auto budget = ByteBudget::Create(std::numeric_limits<int64_t>::max());
  const auto most = budget->TryReserve(std::numeric_limits<int64_t>::max() - 1);
  ASSERT_TRUE(most.has_value());
  EXPECT_FALSE(budget->TryReserve(2).has_value());
  EXPECT_FALSE(budget->TryReserve(std::numeric_limits<int64_t>::max()).has_value());
  EXPECT_TRUE(budget->TryReserve(1).has_value());
}

TEST(ByteBudget, ReservationsKeepTheBudgetAlive) {
  std::optional<ByteBudget::Reservation> reservation = ByteBudget::Create(10)->TryReserve(5);
  ASSERT_TRUE(reservation.has_value());
  EXPECT_EQ(reservation->bytes(), 5);
}

TEST(ByteBudget, IsNeverExceededByThreads) {
  static constexpr int64_t kLimit = 1000;
  const auto budget = ByteBudget::Create(kLimit);
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&budget, seed] {
      std::mt19937_64 random(seed);
      std::vector<ByteBudget::Reservation> held;
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

TEST(ByteBudgetTest, APartOfAReservationLivesOnItsOwn) {
  const auto budget = ByteBudget::Create(10);
  auto whole = budget->TryReserve(8);
  ASSERT_TRUE(whole);
  std::optional<ByteBudget::Reservation> part = whole->Split(3);
  EXPECT_EQ(whole->bytes(), 5);
  EXPECT_EQ(part->bytes(), 3);
  EXPECT_EQ(budget->used(), 8);
  whole.reset();
  EXPECT_EQ(budget->used(), 3);
  part.reset();
  EXPECT_EQ(budget->used(), 0);
}

}  // namespace
}  // namespace sparsefw::server
