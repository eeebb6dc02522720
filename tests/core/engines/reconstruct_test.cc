// Weight reconstruction of every engine against normal equations solved here.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/src/reconstruct/reconstruction_rules.h"
#include "gtest/gtest.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::EngineKind;
using ::sparsefw::testing::IsFloat32;
using ::sparsefw::testing::kAllEngines;
using ::sparsefw::testing::kFastEngines;
using ::sparsefw::testing::LoadedEngine;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::MaskFromRows;
using ::sparsefw::testing::NameOf;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StartingPoint;
using ::sparsefw::testing::StatusIs;
using ::sparsefw::testing::TypedMatrix;

// ||(W - weights) X||^2 by three nested loops, of one row or of all.
double RowLoss(const Matrix<double>& w, const Matrix<double>& gram, const Matrix<double>& weights,
               int64_t row) {
  double loss = 0;
  for (int64_t i = 0; i < w.cols(); ++i) {
    for (int64_t j = 0; j < w.cols(); ++j) {
      loss += (w(row, i) - weights(row, i)) * gram(i, j) * (w(row, j) - weights(row, j));
    }
  }
  return loss;
}

double TotalLoss(const StartingPoint& start, const Matrix<double>& weights) {
  const Matrix<double> w = testing::ToDouble(start.weights);
  const Matrix<double> gram = testing::ToDouble(start.gram);
  double loss = 0;
  for (int64_t row = 0; row < w.rows(); ++row) loss += RowLoss(w, gram, weights, row);
  return loss;
}

Matrix<double> Masked(const StartingPoint& start, const Mask& mask) {
  Matrix<double> w = testing::ToDouble(start.weights);
  for (int64_t row = 0; row < w.rows(); ++row) {
    for (int64_t col = 0; col < w.cols(); ++col) {
      if (!mask.Get(row, col)) w(row, col) = 0;
    }
  }
  return w;
}

// Gauss-Jordan with row pivoting on G_SS x = (G w)_S; G_SS must be regular.
Matrix<double> NormalEquations(const StartingPoint& start, const Mask& mask) {
  const Matrix<double> w = testing::ToDouble(start.weights);
  const Matrix<double> gram = testing::ToDouble(start.gram);
  Matrix<double> result(w.rows(), w.cols());
  for (int64_t row = 0; row < w.rows(); ++row) {
    std::vector<int64_t> kept;
    for (int64_t col = 0; col < w.cols(); ++col) {
      if (mask.Get(row, col)) kept.push_back(col);
    }
    const int64_t n = std::ssize(kept);
    const auto at = [&](int64_t i) { return kept[static_cast<size_t>(i)]; };
    Matrix<double> a(n, n + 1);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) a(i, j) = gram(at(i), at(j));
      for (int64_t j = 0; j < w.cols(); ++j) a(i, n) += gram(at(i), j) * w(row, j);
    }
    for (int64_t k = 0; k < n; ++k) {
      int64_t pivot = k;
      for (int64_t i = k; i < n; ++i) {
        if (std::fabs(a(i, k)) > std::fabs(a(pivot, k))) pivot = i;
      }
      std::swap_ranges(a.row(k), a.row(k) + n + 1, a.row(pivot));
      for (int64_t i = 0; i < n; ++i) {
        if (i == k) continue;
        const double factor = a(i, k) / a(k, k);
        for (int64_t j = k; j <= n; ++j) a(i, j) -= factor * a(k, j);
      }
    }
    for (int64_t i = 0; i < n; ++i) result(row, at(i)) = a(i, n) / a(i, i);
  }
  return result;
}

absl::StatusOr<Matrix<float>> Reconstruct(EngineKind kind, const StartingPoint& start,
                                          const Mask& mask, const ReconstructRequest& request = {},
                                          int threads = 2) {
  SPARSEFW_ASSIGN_OR_RETURN(const auto engine, LoadedEngine(kind, start, {.threads = threads}));
  return engine->Reconstruct(mask, request);
}

void ExpectZeroOutside(const Mask& mask, const Matrix<float>& weights) {
  ASSERT_EQ(weights.rows(), mask.rows());
  ASSERT_EQ(weights.cols(), mask.cols());
  for (int64_t row = 0; row < mask.rows(); ++row) {
    for (int64_t col = 0; col < mask.cols(); ++col) {
      EXPECT_TRUE(mask.Get(row, col) || weights(row, col) == 0) << row << ", " << col;
    }
  }
}

class ReconstructTest : public ::testing::TestWithParam<EngineKind> {
 protected:
  void SetUp() override { SPARSEFW_NEED_DEVICE(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Engines, ReconstructTest, ::testing::ValuesIn(kAllEngines),
                         [](const auto& test) { return NameOf(test.param); });

// The reference solves directly, and takes G as exact.
class IterativeReconstructTest : public ReconstructTest {};

INSTANTIATE_TEST_SUITE_P(Engines, IterativeReconstructTest, ::testing::ValuesIn(kFastEngines),
                         [](const auto& test) { return NameOf(test.param); });

// G = |1 .5|, w = (2 4), the second pruned: w_hat = 2 + .5*4 = 4, the loss
//     |.5 1|  falls from 16 to 16 - (.5*4)^2 = 12.
TEST_P(ReconstructTest, HandWorked) {
  Matrix<float> weights(1, 2);
  weights(0, 0) = 2;
  weights(0, 1) = 4;
  Matrix<double> gram(2, 2);
  gram(0, 0) = gram(1, 1) = 1;
  gram(0, 1) = gram(1, 0) = 0.5;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(weights.view(), gram.view(), Pattern::PerRow(0.5), {}, 0));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(GetParam(), start));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> solved,
                                engine->Reconstruct(MaskFromRows({"10"}), {}));
  EXPECT_EQ(solved(0, 0), 4);
  EXPECT_EQ(solved(0, 1), 0);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const double loss, engine->LossOfWeights(solved));
  EXPECT_NEAR(loss, 12, 1e-12);
}

TEST_P(ReconstructTest, LossIsThatOfTheNormalEquations) {
  for (const double correlation : {0.3, 0.9}) {
    const RandomLayer layer =
        MakeRandomLayer({.rows = 30, .cols = 72, .correlation = correlation, .seed = 3});
    for (const Pattern& pattern :
         {Pattern::Unstructured(0.6), Pattern::PerRow(0.6), Pattern::KeepOfGroup(2, 4)}) {
      SCOPED_TRACE(::testing::Message() << ToString(pattern) << " " << correlation);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const StartingPoint start,
          MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, 0.5));
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(GetParam(), start));
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> solved,
                                    engine->Reconstruct(start.warm, {}));
      ExpectZeroOutside(start.warm, solved);
      const double best = TotalLoss(start, NormalEquations(start, start.warm));
      const double reached = TotalLoss(start, testing::ToDouble(solved.view()));
      EXPECT_GE(reached, best * (1 - 1e-9));
      // The CPU engine stops where four steps gain less than 1e-5.
      EXPECT_LE(reached, best * (1 + (GetParam() == EngineKind::kReference ? 1e-9 : 1e-4)));
      EXPECT_LT(best, 0.9 * TotalLoss(start, Masked(start, start.warm))) << "nothing to gain";
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const double loss, engine->LossOfWeights(solved));
      EXPECT_NEAR(loss, reached, 1e-10 * reached);
    }
  }
}

TEST_P(ReconstructTest, WeightsHaveTheDTypeOfTheInput) {
  const RandomLayer layer = MakeRandomLayer({.rows = 12, .cols = 40, .seed = 4});
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const TypedMatrix weights(layer.weights.view(), dtype, /*padding=*/3);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const StartingPoint start,
        MakeStartingPoint(weights.view(), layer.gram.view(), Pattern::PerRow(0.5), {}, 0));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> solved,
                                  Reconstruct(GetParam(), start, start.warm));
    for (const float value : solved.span()) {
      const float rounded =
          dtype == DType::kF16 ? ToFloat(ToHalf(value)) : ToFloat(ToBFloat16(value));
      EXPECT_EQ(value, rounded);
    }
    const double best = TotalLoss(start, NormalEquations(start, start.warm));
    const double reached = TotalLoss(start, testing::ToDouble(solved.view()));
    EXPECT_LT(reached, TotalLoss(start, Masked(start, start.warm)));
    EXPECT_LT(reached, best * (dtype == DType::kF16 ? 1.001 : 1.1));
  }
}

TEST_P(ReconstructTest, SingularGram) {
  // 20 tokens and 48 inputs, 3 of them dead: of the 24 kept in a row some depend on others.
  const RandomLayer layer =
      MakeRandomLayer({.rows = 10, .cols = 48, .tokens = 20, .dead_columns = 3, .seed = 5});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.5), {}, 0));
  Mask mask = start.warm;
  std::vector<int64_t> dead;
  for (int64_t col = 0; col < 48; ++col) {
    if (layer.gram(col, col) != 0) continue;
    dead.push_back(col);
    for (int64_t row = 0; row < 10; ++row) mask.Set(row, col, true);
  }
  ASSERT_EQ(dead.size(), 3U);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> solved, Reconstruct(GetParam(), start, mask));
  ExpectZeroOutside(mask, solved);
  for (int64_t row = 0; row < 10; ++row) {
    for (const int64_t col : dead) EXPECT_EQ(solved(row, col), layer.weights(row, col));
  }
  // 24 kept inputs of rank 20: everything can be made up for.
  const double masked = TotalLoss(start, Masked(start, mask));
  EXPECT_LT(TotalLoss(start, testing::ToDouble(solved.view())), 1e-4 * masked);
}

// As in a first layer, whose inputs are the embeddings of a few distinct tokens. The other
// eigenvalues of G are its rounding, and along these nothing may be made up for.
TEST_P(IterativeReconstructTest, RoundingOfASingularGramMakesNoLargeWeights) {
  const RandomLayer layer = MakeRandomLayer({.rows = 24, .cols = 192, .tokens = 36, .seed = 5});
  Matrix<float> gram(192, 192);
  for (int64_t i = 0; i < 192; ++i) {
    for (int64_t j = 0; j < 192; ++j) gram(i, j) = static_cast<float>(layer.gram(i, j));
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), gram.view(), Pattern::PerRow(0.6), {}, 0));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> solved,
                                Reconstruct(GetParam(), start, start.warm));
  const Matrix<double> masked = Masked(start, start.warm);
  EXPECT_LT(TotalLoss(start, testing::ToDouble(solved.view())), 1e-4 * TotalLoss(start, masked));
  double before = 0;
  double after = 0;
  for (int64_t row = 0; row < 24; ++row) {
    for (int64_t col = 0; col < 192; ++col) {
      before = std::max(before, std::abs(masked(row, col)));
      after = std::max(after, std::abs(static_cast<double>(solved(row, col))));
    }
  }
  EXPECT_LT(after, 2 * before);
}

// By itself a loss that rounding of G has made small says nothing.
TEST(RowRulesTest, NewWeightsMustLoseLessByMoreThanRounding) {
  EXPECT_TRUE(LosesLess(0.5, 0, 1));
  EXPECT_TRUE(LosesLess(-0.1, 0.2, 1));
  EXPECT_FALSE(LosesLess(0.5, 0.6, 1));
  EXPECT_FALSE(LosesLess(-0.1, 2, 1)) << "may lose as much as 1.9";
  EXPECT_FALSE(LosesLess(-1.5, 0.5, 1)) << "G is not positive semi-definite";
  EXPECT_FALSE(LosesLess(1 - 1e-7, 0, 1));
  EXPECT_FALSE(LosesLess(std::nan(""), 0, 1));
}

TEST_P(ReconstructTest, RowsWithNothingOrEverythingKept) {
  const RandomLayer layer = MakeRandomLayer({.rows = 3, .cols = 20, .seed = 6});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StartingPoint start,
                                MakeStartingPoint(layer.weights.view(), layer.gram.view(),
                                                  Pattern::Unstructured(0.5), {}, 0));
  const Mask mask =
      MaskFromRows({std::string(20, '0'), std::string(20, '1'), "01010101010101010101"});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> solved, Reconstruct(GetParam(), start, mask));
  ExpectZeroOutside(mask, solved);
  for (int64_t col = 0; col < 20; ++col) EXPECT_EQ(solved(1, col), layer.weights(1, col));
  EXPECT_LT(TotalLoss(start, testing::ToDouble(solved.view())),
            TotalLoss(start, Masked(start, mask)));
}

// The second row's solution is 2^17, beyond F16; the first one's is not.
TEST_P(ReconstructTest, RowsThatWouldLeaveTheRangeOfTheDTypeStay) {
  Matrix<float> values(2, 2);
  values(0, 0) = values(0, 1) = 1;
  values(1, 0) = 1;
  values(1, 1) = 32768;
  const TypedMatrix weights(values.view(), DType::kF16);
  Matrix<double> gram(2, 2);
  gram(0, 0) = 1;
  gram(0, 1) = gram(1, 0) = 4;
  gram(1, 1) = 17;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(weights.view(), gram.view(), Pattern::PerRow(0.5), {}, 0));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> solved,
                                Reconstruct(GetParam(), start, MaskFromRows({"10", "10"})));
  EXPECT_EQ(solved(0, 0), 5);
  EXPECT_EQ(solved(1, 0), 1);
}

TEST_P(ReconstructTest, NoRowIsWorseThanItsMaskedWeights) {
  // bfloat16 has 8 bits: rounding costs more than there is to gain in many rows.
  const RandomLayer layer =
      MakeRandomLayer({.rows = 60, .cols = 32, .correlation = 0, .large_columns = 0, .seed = 7});
  const TypedMatrix weights(layer.weights.view(), DType::kBF16);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(weights.view(), layer.gram.view(), Pattern::PerRow(0.1), {}, 0));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> solved,
                                Reconstruct(GetParam(), start, start.warm));
  const Matrix<double> w = testing::ToDouble(start.weights);
  const Matrix<double> reached = testing::ToDouble(solved.view());
  const Matrix<double> masked = Masked(start, start.warm);
  for (int64_t row = 0; row < 60; ++row) {
    EXPECT_LE(RowLoss(w, layer.gram, reached, row), RowLoss(w, layer.gram, masked, row)) << row;
  }
}

TEST_P(ReconstructTest, SameBitsForAnyNumberOfThreads) {
  const RandomLayer layer = MakeRandomLayer({.rows = 150, .cols = 40, .seed = 8});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.6), {}, 0));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> once,
                                Reconstruct(GetParam(), start, start.warm, {}, 1));
  for (const int threads : {2, 4}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> again,
                                  Reconstruct(GetParam(), start, start.warm, {}, threads));
    EXPECT_TRUE(std::equal(again.span().begin(), again.span().end(), once.span().begin()));
  }
}

TEST_P(ReconstructTest, OutOfTimeInTheMiddleIsStillBetter) {
  const RandomLayer layer = MakeRandomLayer({.rows = 20, .cols = 64, .seed = 9});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.6), {}, 0));
  int all_looks = 0;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> whole,
                                Reconstruct(GetParam(), start, start.warm, {.out_of_time = [&] {
                                              ++all_looks;
                                              return false;
                                            }}));
  ASSERT_GE(all_looks, 8);
  int looks = 0;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> part,
                                Reconstruct(GetParam(), start, start.warm, {.out_of_time = [&] {
                                              return ++looks > all_looks / 4;
                                            }}));
  const double cut_short = TotalLoss(start, testing::ToDouble(part.view()));
  EXPECT_LT(cut_short, TotalLoss(start, Masked(start, start.warm)));
  EXPECT_GT(cut_short, TotalLoss(start, testing::ToDouble(whole.view())));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const Matrix<float> nothing,
      Reconstruct(GetParam(), start, start.warm, {.out_of_time = [] { return true; }}));
  EXPECT_EQ(TotalLoss(start, testing::ToDouble(nothing.view())),
            TotalLoss(start, Masked(start, start.warm)));
}

TEST_P(ReconstructTest, StopSignalEndsIt) {
  const RandomLayer layer = MakeRandomLayer({.rows = 20, .cols = 64, .seed = 9});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.6), {}, 0));
  StopSignal stop;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine,
                                LoadedEngine(GetParam(), start, {.threads = 2, .stop = &stop}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> solved, engine->Reconstruct(start.warm, {}));
  stop.Request();
  EXPECT_THAT(engine->Reconstruct(start.warm, {}), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(engine->LossOfWeights(solved), StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace sparsefw
