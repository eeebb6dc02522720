// The arithmetic of the CUDA engine's swap refinement, on the host: changes of
// the loss, the order of exchanges.
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "core/src/cuda/swaps/swap_terms.h"
#include "gtest/gtest.h"
#include "sparsefw/matrix.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cuda {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::RandomLayer;

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

}  // namespace
}  // namespace sparsefw::cuda
