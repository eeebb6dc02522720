// The parts of the CPU engine's swap refinement, against plain loops.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/src/cpu/swaps/row_minimum.h"
#include "core/src/cpu/swaps/swap_kernels.h"
#include "core/src/select/bit_rows.h"
#include "gtest/gtest.h"
#include "sparsefw/matrix.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cpu {
namespace {

using ::sparsefw::testing::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(RowMinimumTest, IsTheFirstOfTheLeast) {
  Random random(1);
  for (const int64_t count : {1, 2, 3, 7, 8, 33}) {
    RowMinimum tree(count);
    EXPECT_EQ(tree.Least(), 0);
    EXPECT_EQ(tree.Value(0), kInfinity);
    std::vector<double> plain(static_cast<size_t>(count), kInfinity);
    for (int change = 0; change < 200; ++change) {
      const int64_t position = random.Below(count);
      // Few values, so that there are ties, and sometimes none at all.
      const double value = random.Below(4) == 0 ? kInfinity : static_cast<double>(random.Below(5));
      plain[static_cast<size_t>(position)] = value;
      tree.Set(position, value);
      EXPECT_EQ(tree.Least(), std::min_element(plain.begin(), plain.end()) - plain.begin());
    }
  }
}

template <typename Real>
class SwapKernelsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kCols = 150;  // the last word is not full
  static constexpr int64_t kWords = 3;

  SwapKernelsTest() {
    Random random(2);
    for (int64_t col = 0; col < kCols; ++col) {
      columns_.Set(0, col);
      weights_(0, col) = static_cast<Real>(random.Normal());
      gram_(0, col) = static_cast<Real>(random.Normal());
      gram_(1, col) = static_cast<Real>(random.Normal());
      diagonal_(0, col) = random.Uniform() + 1;
      product_(0, col) = random.Normal();
      if (random.Below(2) == 0) continue;
      kept_.Set(0, col);
      if (random.Below(2) == 0) locked_.Set(0, col);
    }
  }

  SwapOperands<Real> Row() {
    return {kWords,         weights_.row(0), diagonal_.data(), kept_.row(0),
            locked_.row(0), columns_.row(0), product_.data()};
  }
  double W(int64_t col) const { return static_cast<double>(weights_(0, col)); }
  double G(int64_t col) const { return static_cast<double>(gram_(0, col)); }

  BitRows columns_{1, kCols};
  BitRows kept_{1, kCols};
  BitRows locked_{1, kCols};
  Matrix<Real> weights_{1, kWords * 64};
  Matrix<Real> gram_{2, kWords * 64};
  Matrix<double> diagonal_{1, kWords * 64};
  Matrix<double> product_{1, kWords * 64};
};

using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SwapKernelsTest, Reals);

TYPED_TEST(SwapKernelsTest, TermsAreThoseOfTheFormula) {
  Matrix<double> out(1, this->kWords * 64);
  Matrix<double> in(1, this->kWords * 64);
  KernelsOfSwaps<TypeParam>().swap_terms(this->Row(), out.data(), in.data());
  for (int64_t col = 0; col < this->kWords * 64; ++col) {
    const bool inside = col < this->kCols;
    const bool kept = inside && this->kept_.Get(0, col);
    const bool movable = kept && !this->locked_.Get(0, col);
    const double w = this->W(col);
    const double e = this->product_(0, col);
    const double square = w * w * this->diagonal_(0, col);
    if (movable) {
      EXPECT_NEAR(out(0, col), 2 * w * e + square, 1e-12);
    } else {
      EXPECT_EQ(out(0, col), kInfinity);
    }
    if (inside && !kept) {
      EXPECT_NEAR(in(0, col), -2 * w * e + square, 1e-12);
    } else {
      EXPECT_EQ(in(0, col), kInfinity);
    }
  }
}

TYPED_TEST(SwapKernelsTest, BestPartnerIsTheLeastAndTheLastOfEquals) {
  Matrix<double> in(1, this->kWords * 64);
  std::fill_n(in.data(), in.size(), kInfinity);
  EXPECT_EQ(KernelsOfSwaps<TypeParam>().best_partner(this->kWords, in.data(), this->weights_.row(0),
                                                     this->gram_.row(0), 0.7),
            kInfinity);
  for (int64_t col = 0; col < this->kCols; col += 3)
    in(0, col) = std::sin(static_cast<double>(col));
  int64_t expected = -1;
  double least = kInfinity;
  for (int64_t col = 0; col < this->kCols; ++col) {
    const double value = in(0, col) - 0.7 * this->W(col) * this->G(col);
    if (value < least) {
      least = value;
      expected = col;
    }
  }
  const double best = KernelsOfSwaps<TypeParam>().best_partner(
      this->kWords, in.data(), this->weights_.row(0), this->gram_.row(0), 0.7);
  EXPECT_NEAR(best, least, 1e-12);
  EXPECT_EQ(KernelsOfSwaps<TypeParam>().find_partner(this->kWords, in.data(), this->weights_.row(0),
                                                     this->gram_.row(0), 0.7, best),
            expected);
  // With factor 0 the terms alone decide; two of them are made equal.
  in(0, 12) = in(0, 141) = -5;
  EXPECT_EQ(KernelsOfSwaps<TypeParam>().best_partner(this->kWords, in.data(), this->weights_.row(0),
                                                     this->gram_.row(0), 0),
            -5);
  EXPECT_EQ(KernelsOfSwaps<TypeParam>().find_partner(this->kWords, in.data(), this->weights_.row(0),
                                                     this->gram_.row(0), 0, -5),
            141);
}

TYPED_TEST(SwapKernelsTest, AddTwoRowsAdds) {
  Matrix<double> sum(1, this->kWords * 64);
  std::copy_n(this->product_.data(), sum.size(), sum.data());
  KernelsOfSwaps<TypeParam>().add_two_rows(this->kWords, 1.5, this->gram_.row(0), -0.25,
                                           this->gram_.row(1), sum.data());
  for (int64_t col = 0; col < sum.size(); ++col) {
    EXPECT_NEAR(sum(0, col),
                this->product_(0, col) + 1.5 * this->G(col) -
                    0.25 * static_cast<double>(this->gram_(1, col)),
                1e-12);
  }
}

}  // namespace
}  // namespace sparsefw::cpu
