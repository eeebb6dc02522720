// The arithmetic of the CUDA engine's swap refinement, on the host: changes of
// the loss, the order of exchanges, the matching of rows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "core/src/cuda/swaps/row_matching.h"
#include "core/src/cuda/swaps/swap_terms.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/matrix.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cuda {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::Random;
using ::sparsefw::testing::RandomLayer;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// <D, D G> of one row.
double LossOf(const RandomLayer& layer, const std::vector<bool>& kept) {
  double loss = 0;
  for (int64_t i = 0; i < layer.gram.rows(); ++i) {
    for (int64_t j = 0; j < layer.gram.rows(); ++j) {
      if (kept[static_cast<size_t>(i)] || kept[static_cast<size_t>(j)]) continue;
      loss += static_cast<double>(layer.weights(0, i)) * layer.gram(i, j) *
              static_cast<double>(layer.weights(0, j));
    }
  }
  return loss;
}

class SwapTermsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kCols = 12;
  SwapTermsTest()
      : layer_(MakeRandomLayer({.rows = 1, .cols = kCols, .seed = 3})), product_(1, kCols) {
    for (int64_t i = 0; i < kCols; ++i) kept_.push_back(i % 3 != 0);
    for (int64_t i = 0; i < kCols; ++i) {
      for (int64_t j = 0; j < kCols; ++j) {
        if (!Kept(i)) product_(0, j) += W(i) * layer_.gram(i, j);
      }
    }
  }
  bool Kept(int64_t col) const { return kept_[static_cast<size_t>(col)]; }
  double W(int64_t col) const { return static_cast<double>(layer_.weights(0, col)); }
  double Out(int64_t p) const { return OutTerm(W(p), product_(0, p), layer_.gram(p, p)); }
  double In(int64_t q) const { return InTerm(W(q), product_(0, q), layer_.gram(q, q)); }
  double ChangeOfFlipping(const std::vector<int64_t>& cols) const {
    std::vector<bool> other = kept_;
    for (const int64_t col : cols) other[static_cast<size_t>(col)] = !Kept(col);
    return LossOf(layer_, other) - LossOf(layer_, kept_);
  }

  RandomLayer layer_;
  std::vector<bool> kept_;
  Matrix<double> product_;
};

TEST_F(SwapTermsTest, AreWhatTheLossChangesBy) {
  const double rounding = 1e-12 * LossOf(layer_, std::vector<bool>(kCols));
  for (int64_t p = 0; p < kCols; ++p) {
    if (!Kept(p)) continue;
    EXPECT_NEAR(Out(p), ChangeOfFlipping({p}), rounding);
    for (int64_t q = 0; q < kCols; ++q) {
      if (Kept(q)) continue;
      EXPECT_NEAR(In(q), ChangeOfFlipping({q}), rounding);
      EXPECT_NEAR(Out(p) + WithPartner(In(q), W(p), W(q), layer_.gram(p, q)),
                  ChangeOfFlipping({p, q}), rounding);
    }
  }
}

TEST_F(SwapTermsTest, TheBoundHoldsForEveryPartner) {
  PartnerBounds bounds = {kInfinity, 0};
  for (int64_t q = 0; q < kCols; ++q) {
    if (!Kept(q)) bounds = Wider(bounds, {In(q), W(q) * W(q) * layer_.gram(q, q)});
  }
  for (int64_t p = 0; p < kCols; ++p) {
    if (!Kept(p)) continue;
    double reach = 0;
    double least = kInfinity;
    for (int64_t j = 0; j < kCols; ++j) {
      if (j == p) continue;
      reach = std::max(reach, std::fabs(layer_.gram(p, j)) / std::sqrt(layer_.gram(j, j)));
      if (Kept(j)) continue;
      least = std::min(least, Out(p) + WithPartner(In(j), W(p), W(j), layer_.gram(p, j)));
    }
    const double norm = std::sqrt(bounds.largest_square);
    // The best partner's change is below one that is a little higher than it.
    const double higher = least + 1e-6 * std::fabs(least);
    EXPECT_TRUE(MayImprove(Out(p), bounds.least_in, std::fabs(W(p)) * reach, norm, -higher));
    EXPECT_FALSE(MayImprove(Out(p), bounds.least_in, std::fabs(W(p)) * reach, norm, 1e30));
  }
  EXPECT_TRUE(MayImprove(1, 1, kInfinity, 0, 0)) << "infinity times 0 bounds nothing";
}

TEST(SwapOrderTest, EqualsKeepTheHigherIndex) {
  const Term a = {1, 3};
  const Term b = {1, 5};
  for (const auto& [x, y] : {std::tuple(a, b), std::tuple(b, a)}) {
    EXPECT_EQ(CheaperOut(x, y).col, 3);
    EXPECT_EQ(BetterIn(x, y).col, 5);
  }
  EXPECT_EQ(CheaperOut(a, {0, 9}).col, 9);
  EXPECT_EQ(BetterIn(b, {0, 1}).col, 1);
  EXPECT_EQ(CheaperOut(NoTerm(), b).col, 5);
  EXPECT_EQ(BetterIn(NoTerm(), a).col, 3);

  const std::vector<Exchange> sorted = {
      {-2, 4, 1}, {-1, 2, 6}, {-1, 2, 5}, {-1, 3, 9}, NoExchange()};
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = i; j < sorted.size(); ++j) {
      EXPECT_EQ(BetterExchange(sorted[i], sorted[j]).q, sorted[i].q);
      EXPECT_EQ(BetterExchange(sorted[j], sorted[i]).q, sorted[i].q);
    }
  }
}

RowTerms Terms(double out, double in) { return {{out, 0}, {in, 0}}; }

std::vector<RowMatch> MatchRows(const std::vector<RowTerms>& terms,
                                const std::vector<double>& tolerance) {
  RowMatching matching(tolerance);
  for (size_t row = 0; row < terms.size(); ++row) {
    matching.SetTerms(static_cast<int64_t>(row), terms[row]);
  }
  return matching.Match();
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
  EXPECT_THAT(MatchRows({}, {}), IsEmpty());
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

// Against all pairs of the rows that are left, with more rows than are sorted at first.
TEST(RowMatchingTest, BestFirstEachRowOnceAllImprove) {
  Random random(4);
  for (int round = 0; round < 200; ++round) {
    const auto rows = static_cast<size_t>(1 + random.Below(round % 4 == 0 ? 150 : 12));
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
    std::vector<int> used(rows);
    const auto best_left = [&] {
      double best = 0;
      for (size_t p = 0; p < rows; ++p) {
        for (size_t q = 0; q < rows; ++q) {
          if (p != q && used[p] + used[q] == 0) best = std::min(best, excess(p, q));
        }
      }
      return best;
    };
    const double first = best_left();
    for (const RowMatch& match : MatchRows(terms, tolerance)) {
      const auto p = static_cast<size_t>(match.p_row);
      const auto q = static_cast<size_t>(match.q_row);
      EXPECT_NEAR(excess(p, q), best_left(), 1e-12);
      EXPECT_LT(excess(p, q), kLeastOfBest * first);
      EXPECT_EQ(used[p]++ + used[q]++, 0);
    }
    EXPECT_GE(best_left(), kLeastOfBest * first - 1e-12);
  }
}

TEST(RowMatchingTest, TheLastTermsCount) {
  RowMatching matching({0, 0});
  EXPECT_THAT(matching.Match(), IsEmpty()) << "no row offers anything before its terms";
  matching.SetTerms(0, Terms(1, -5));
  matching.SetTerms(1, Terms(2, -9));
  EXPECT_THAT(matching.Match(), ElementsAre(RowMatch{0, 1}));
  matching.SetTerms(1, Terms(2, -3));
  EXPECT_THAT(matching.Match(), ElementsAre(RowMatch{1, 0}));
}

}  // namespace
}  // namespace sparsefw::cuda
