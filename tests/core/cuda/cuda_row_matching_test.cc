// The exchanges between rows that a round makes.
#include <algorithm>
#include <limits>
#include <ostream>
#include <vector>

#include "core/src/cuda/swaps/swap_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cuda_on_host/test_buffer.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cuda {
namespace {

using ::cuda_on_host::TestBuffer;
using ::sparsefw::testing::Random;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct RowMatch {
  int64_t p_row;
  int64_t q_row;
  friend bool operator==(const RowMatch&, const RowMatch&) = default;
  friend std::ostream& operator<<(std::ostream& out, const RowMatch& match) {
    return out << "row " << match.p_row << " gives, row " << match.q_row << " takes";
  }
};

// A row's columns are its number and one beyond it.
RowTerms Terms(double out, double in) { return {{out, 0}, {in, 0}}; }

std::vector<RowMatch> MatchRows(std::vector<RowTerms> terms, const std::vector<double>& tolerance) {
  const auto rows = static_cast<int64_t>(terms.size());
  for (int64_t row = 0; row < rows; ++row) {
    RowTerms& its = terms[static_cast<size_t>(row)];
    its.out.col = row;
    its.in.col = row + 1;
  }
  TestBuffer<RowTerms> device_terms(terms);
  TestBuffer<double> device_tolerance(tolerance);
  TestBuffer<RowMove> moves(std::vector<RowMove>(static_cast<size_t>(kMostMoves), {-1, -1}));
  TestBuffer<RowExchanges> exchanges({RowExchanges{.swaps = 40, .loss_change = -7, .moves = 2}});
  cuda_on_host::MustSucceed(LaunchMatchRows(rows, device_tolerance.data(), device_terms.data(),
                                            moves.data(), exchanges.data(), nullptr));
  const RowExchanges made = exchanges.Get()[0];
  std::vector<RowMove> written = moves.Get();
  std::vector<RowMatch> matches;
  double change = -7;
  for (size_t i = 0; i < static_cast<size_t>(made.moves); i += 2) {
    const RowMove& p = written[i];
    const RowMove& q = written[i + 1];
    matches.push_back({p.row, q.row});
    change += terms[static_cast<size_t>(p.row)].out.value;
    change += terms[static_cast<size_t>(q.row)].in.value;
    EXPECT_EQ(p.col, p.row);
    EXPECT_EQ(q.col, q.row + 1);
  }
  EXPECT_EQ(made.swaps, 40 + std::ssize(matches));
  EXPECT_NEAR(made.loss_change, change, 1e-12);
  return matches;
}

TEST(RowMatchingTest, CheapestMeetsMostUseful) {
  const std::vector<RowTerms> terms = {Terms(4, -1), Terms(1, -2), Terms(9, -10), Terms(2, -8)};
  const std::vector<double> tolerance(4, 0);
  // 1 - 10 is the best; of rows 0 and 3, 4 - 8 improves and 2 - 1 would not.
  EXPECT_THAT(MatchRows(terms, tolerance), ElementsAre(RowMatch{1, 2}, RowMatch{0, 3}));
}

TEST(RowMatchingTest, OneRowIsNotMatchedWithItself) {
  // Row 0 has the cheapest p and the most useful q.
  EXPECT_THAT(MatchRows(std::vector{Terms(1, -9), Terms(5, -8)}, std::vector<double>(2, 0)),
              ElementsAre(RowMatch{0, 1}));
  EXPECT_THAT(MatchRows(std::vector{Terms(1, -9), Terms(5, -1)}, std::vector<double>(2, 0)),
              ElementsAre(RowMatch{1, 0}));
  EXPECT_THAT(MatchRows(std::vector{Terms(1, -9)}, std::vector<double>(1, 0)), IsEmpty());
}

TEST(RowMatchingTest, TolerancesOfBothRowsCount) {
  const std::vector<RowTerms> terms = {Terms(1, kInfinity), Terms(kInfinity, -1.5)};
  EXPECT_THAT(MatchRows(terms, std::vector{0.2, 0.2}), ElementsAre(RowMatch{0, 1}));
  EXPECT_THAT(MatchRows(terms, std::vector{0.25, 0.25}), IsEmpty());
}

TEST(RowMatchingTest, SmallGainsWaitForALaterRound) {
  const std::vector<RowTerms> terms = {Terms(0, kInfinity), Terms(kInfinity, -8),
                                       Terms(0, kInfinity), Terms(kInfinity, -0.7)};
  EXPECT_THAT(MatchRows(terms, std::vector<double>(4, 0)), ElementsAre(RowMatch{0, 1}));
}

TEST(RowMatchingTest, EqualsKeepTheHigherRow) {
  const std::vector<RowTerms> terms(6, Terms(1, -3));
  EXPECT_THAT(MatchRows(terms, std::vector<double>(6, 0)),
              ElementsAre(RowMatch{0, 5}, RowMatch{1, 4}, RowMatch{2, 3}));
}

TEST(RowMatchingTest, RowsWithoutTermsOfferNothing) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  EXPECT_THAT(MatchRows(std::vector(3, Terms(kNone, kNone)), std::vector<double>(3, 0)), IsEmpty());
  EXPECT_THAT(MatchRows({Terms(kNone, -1), Terms(kNone, -2)}, {0, 0}), IsEmpty());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(MatchRows({Terms(nan, -5), Terms(nan, nan), Terms(1, nan)}, {0, 0, 0}),
              ElementsAre(RowMatch{2, 0}));
}

// With more rows than the block has threads, too.
TEST(RowMatchingTest, BestFirstEachRowOnceAllImprove) {
  Random random(4);
  for (int round = 0; round < 60; ++round) {
    const auto rows = static_cast<size_t>(1 + random.Below(round % 4 == 0 ? 900 : 12));
    std::vector<RowTerms> terms;
    std::vector<double> tolerance;
    for (size_t row = 0; row < rows; ++row) {
      const auto out = static_cast<double>(random.Below(6));
      const auto in = -static_cast<double>(random.Below(6));
      terms.push_back(
          Terms(random.Below(5) == 0 ? kInfinity : out, random.Below(5) == 0 ? kInfinity : in));
      tolerance.push_back(0.01 * random.Uniform());
    }
    const auto excess = [&](size_t p, size_t q) {
      return terms[p].out.value + terms[q].in.value + tolerance[p] + tolerance[q];
    };
    double best = 0;
    for (size_t p = 0; p < rows; ++p) {
      for (size_t q = 0; q < rows; ++q) {
        if (p != q) best = std::min(best, excess(p, q));
      }
    }
    const std::vector<RowMatch> matches = MatchRows(terms, tolerance);
    EXPECT_EQ(matches.empty(), best == 0);
    std::vector<int> used(rows);
    double before = -kInfinity;
    for (const RowMatch& match : matches) {
      const auto p = static_cast<size_t>(match.p_row);
      const auto q = static_cast<size_t>(match.q_row);
      if (&match == &matches.front()) {
        EXPECT_NEAR(excess(p, q), best, 1e-12);
      }
      EXPECT_LT(excess(p, q), kLeastOfBest * best + 1e-12);
      EXPECT_GE(excess(p, q), before - 1e-12);
      EXPECT_EQ(used[p]++ + used[q]++, 0);
      before = excess(p, q);
    }
  }
}

TEST(RowMatchingTest, ARoundMakesManyExchanges) {
  std::vector<RowTerms> terms;
  for (int64_t row = 0; row < 1000; ++row) {
    terms.push_back(row % 2 == 0 ? Terms(1, kInfinity) : Terms(kInfinity, -3));
  }
  EXPECT_EQ(MatchRows(terms, std::vector<double>(1000, 0)).size(), 1 + 128);
}

}  // namespace
}  // namespace sparsefw::cuda
