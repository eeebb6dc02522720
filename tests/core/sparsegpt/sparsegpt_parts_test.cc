// The parts of SparseGPT: the factor, its damping, the selection.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "core/src/select/selection.h"
#include "core/src/sparsegpt/damping.h"
#include "core/src/sparsegpt/inverse_factor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::sparsegpt {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::Random;
using ::sparsefw::testing::StatusIs;
using ::testing::ElementsAre;

// In the left columns of a wider matrix, whose padding is NaN.
Matrix<double> Padded(const Matrix<double>& gram, int64_t padding) {
  Matrix<double> padded(gram.rows(), gram.cols() + padding);
  for (int64_t row = 0; row < gram.rows(); ++row) {
    std::fill_n(padded.row(row), padded.cols(), NAN);
    std::copy_n(gram.row(row), gram.cols(), padded.row(row));
  }
  return padded;
}

// [[1, c], [c, 1]], whose eigenvalues are 1 - c and 1 + c.
Matrix<double> TwoByTwo(double c) {
  Matrix<double> gram(2, 2);
  gram(0, 0) = gram(1, 1) = 1;
  gram(0, 1) = gram(1, 0) = c;
  return gram;
}

class InverseFactorTest : public ::testing::TestWithParam<int64_t> {};

// Within a tile of 128, and of several tiles.
INSTANTIATE_TEST_SUITE_P(Sizes, InverseFactorTest, ::testing::Values(1, 2, 5, 127, 128, 129, 300));

// U^T U H = I says both that U is right and that it is triangular enough.
TEST_P(InverseFactorTest, IsTheFactorOfTheInverse) {
  const int64_t size = GetParam();
  const Matrix<double> gram = MakeRandomLayer({.rows = 1, .cols = size, .large_columns = 0}).gram;
  Matrix<double> h = Padded(gram, 3);
  const ParallelContext context(0, nullptr);
  InverseFactor factor(h, size, context);
  const double added = 0.01 * gram(0, 0);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const std::optional<FailedPivot> failed, factor.Factorize(added));
  ASSERT_FALSE(failed.has_value());

  // x = U^T (U (H e)) for every unit vector e.
  for (int64_t unit = 0; unit < size; ++unit) {
    std::vector<double> half(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t k = i; k < size; ++k) {
        half[static_cast<size_t>(i)] += h(i, k) * (gram(k, unit) + (k == unit ? added : 0));
      }
    }
    for (int64_t i = 0; i < size; ++i) {
      double sum = 0;
      for (int64_t k = 0; k <= i; ++k) sum += h(k, i) * half[static_cast<size_t>(k)];
      ASSERT_NEAR(sum, i == unit ? 1 : 0, 1e-10) << i << ", " << unit;
    }
    ASSERT_GT(h(unit, unit), 0);
  }
}

TEST(InverseFactorTest, NamesThePivotAndWorksAgainWithMore) {
  Matrix<double> h = TwoByTwo(1.5);
  const ParallelContext context(0, nullptr);
  InverseFactor factor(h, 2, context);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(std::optional<FailedPivot> failed, factor.Factorize(0));
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->column, 0);  // the last column is eliminated first
  EXPECT_EQ(failed->pivot, 1 - 1.5 * 1.5);
  EXPECT_EQ(failed->diagonal, 1);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(failed, factor.Factorize(1));
  ASSERT_FALSE(failed.has_value());
  // H^-1 = [[2, -1.5], [-1.5, 2]] / 1.75 and U_00 = sqrt(2 / 1.75), U_00 U_01 = -1.5 / 1.75.
  EXPECT_NEAR(h(0, 0), std::sqrt(2 / 1.75), 1e-15);
  EXPECT_NEAR(h(0, 1), -1.5 / 1.75 / std::sqrt(2 / 1.75), 1e-15);
  EXPECT_NEAR(h(1, 1), std::sqrt(0.5), 1e-15);
}

TEST(InverseFactorTest, WorksAgainAcrossTiles) {
  const Matrix<double> gram = MakeRandomLayer({.rows = 1, .cols = 200, .large_columns = 0}).gram;
  Matrix<double> spoiled = Padded(gram, 0);
  for (int64_t i = 0; i < 200; ++i) spoiled(i, i) -= gram(5, 5);
  Matrix<double> plain = Padded(spoiled, 0);
  for (int64_t i = 0; i < 200; ++i) plain(i, i) += gram(5, 5) + 1;
  const ParallelContext context(0, nullptr);
  InverseFactor once(plain, 200, context);
  InverseFactor twice(spoiled, 200, context);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(std::optional<FailedPivot> failed, twice.Factorize(0));
  ASSERT_TRUE(failed.has_value());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(failed, twice.Factorize(gram(5, 5) + 1));
  ASSERT_FALSE(failed.has_value());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(failed, once.Factorize(0));
  ASSERT_FALSE(failed.has_value());
  for (int64_t i = 0; i < 200; ++i) {
    ASSERT_EQ(std::memcmp(spoiled.row(i) + i, plain.row(i) + i,
                          static_cast<size_t>(200 - i) * sizeof(double)),
              0)
        << i;
  }
}

// A correct factorisation of a singular matrix leaves rounding, of either sign.
TEST(InverseFactorTest, RoundingIsNoPivot) {
  const Matrix<double> gram =
      MakeRandomLayer({.rows = 1, .cols = 150, .tokens = 140, .large_columns = 0}).gram;
  Matrix<double> h = Padded(gram, 0);
  const ParallelContext context(0, nullptr);
  InverseFactor factor(h, 150, context);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const std::optional<FailedPivot> failed, factor.Factorize(0));
  ASSERT_TRUE(failed.has_value());
  EXPECT_LT(std::fabs(failed->pivot), 150 * 0x1p-52 * failed->diagonal);
}

struct DampingCase {
  double off_diagonal;
  double damping;
  double used;
};

class DampingTest : public ::testing::TestWithParam<DampingCase> {};

// [[1, c], [c, 1]] needs a damping above c - 1.
INSTANTIATE_TEST_SUITE_P(
    All, DampingTest,
    ::testing::Values(DampingCase{0.5, 0.01, 0.01}, DampingCase{0.5, 0, 0},
                      DampingCase{1, 0, 0.01},     // singular: from 0 to 0.01
                      DampingCase{1, 0.01, 0.01},  // singular, damped
                      DampingCase{1.005, 0.01, 0.01}, DampingCase{1.05, 0.01, 0.1},
                      DampingCase{1.5, 0.01, 1}, DampingCase{1.5, 0, 1},
                      DampingCase{1.05, 0.05, 0.5},  // 0.05 is not above 0.05 enough
                      DampingCase{1.7, 0.05, 1},     // the last step is shorter
                      DampingCase{1.005, 1e-4, 0.01}));

TEST_P(DampingTest, IsRaisedUntilItIsEnough) {
  Matrix<double> gram = TwoByTwo(GetParam().off_diagonal);
  const ParallelContext context(0, nullptr);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const DampedFactor factor,
                                FactorizeDamped(gram, 2, GetParam().damping, context));
  EXPECT_EQ(factor.damping, GetParam().used);
  const double damped = 1 + GetParam().used;
  EXPECT_NEAR(gram(1, 1), 1 / std::sqrt(damped), 1e-15);
}

TEST(DampingTest, GivesUpAboveOneWithTheNumbers) {
  Matrix<double> gram = TwoByTwo(2.5);
  const ParallelContext context(0, nullptr);
  const absl::StatusOr<DampedFactor> factor = FactorizeDamped(gram, 2, 0.01, context);
  // The pivot: 2 - 2.5^2 / 2 = -1.125.
  EXPECT_THAT(factor, StatusIs(absl::StatusCode::kInvalidArgument, "GRAM_NOT_POSITIVE_DEFINITE",
                               "damping=1,", "column 0 is -0.5625 times its diagonal"));
  EXPECT_EQ(ReasonMetadataOf(factor.status()).at("damping"), "1");
  EXPECT_EQ(ReasonMetadataOf(factor.status()).at("column"), "0");
}

// The mean is of the live ones: 2 and 4 give 3, whatever stands beside them.
TEST(DampingTest, DeadColumnsGetTheMeanAndCountForNone) {
  Matrix<double> gram(4, 4);
  gram(0, 0) = 2;
  gram(2, 2) = 4;
  gram(2, 3) = gram(3, 2) = 0.1;
  const ParallelContext context(0, nullptr);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const DampedFactor factor, FactorizeDamped(gram, 4, 0.5, context));
  EXPECT_THAT(factor.dead_columns, ElementsAre(1, 3));
  EXPECT_NEAR(gram(0, 0), 1 / std::sqrt(2 + 1.5), 1e-15);
  EXPECT_NEAR(gram(1, 1), 1 / std::sqrt(3 + 1.5), 1e-15);
  EXPECT_NEAR(gram(2, 2), 1 / std::sqrt(4 + 1.5), 1e-15);
}

TEST(DampingTest, AllDeadIsTheIdentityDamped) {
  Matrix<double> gram(3, 3);
  const ParallelContext context(0, nullptr);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const DampedFactor factor, FactorizeDamped(gram, 3, 0.21, context));
  EXPECT_THAT(factor.dead_columns, ElementsAre(0, 1, 2));
  for (int64_t i = 0; i < 3; ++i) EXPECT_NEAR(gram(i, i), 1 / 1.1, 1e-15);
}

TEST(BlockColumnsTest, AreWholeGroups) {
  EXPECT_EQ(BlockColumns(Pattern::PerRow(0.5), 128, 300), 128);
  EXPECT_EQ(BlockColumns(Pattern::PerRow(0.5), 128, 100), 100);
  EXPECT_EQ(BlockColumns(Pattern::KeepOfGroup(2, 4), 128, 300), 128);
  EXPECT_EQ(BlockColumns(Pattern::KeepOfGroup(1, 3), 128, 300), 126);
  EXPECT_EQ(BlockColumns(Pattern::KeepOfGroup(1, 150), 128, 300), 150);
  EXPECT_EQ(BlockColumns(Pattern::KeepOfGroup(2, 4), 1, 300), 4);
}

}  // namespace
}  // namespace sparsefw::sparsegpt
