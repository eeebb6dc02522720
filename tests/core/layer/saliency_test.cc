// Scores against the float64 formulas, in every dtype.
#include "sparsefw/saliency.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "core/src/parallel/parallel_context.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::absl::StatusCode;
using ::sparsefw::testing::LayerOptions;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StatusIs;
using ::sparsefw::testing::TypedMatrix;

std::vector<double> DiagonalOf(const Matrix<double>& gram) {
  std::vector<double> diagonal;
  for (int64_t i = 0; i < gram.rows(); ++i) diagonal.push_back(gram(i, i));
  return diagonal;
}

// The formulas, weight by weight, with sums formed anew for each.
float Expected(const Matrix<double>& w, const std::vector<double>& diagonal,
               const SaliencyOptions& options, int64_t row, int64_t col) {
  const double magnitude = std::fabs(w(row, col));
  if (options.method == SaliencyMethod::kMagnitude) return static_cast<float>(magnitude);
  const double norm = std::sqrt(diagonal[static_cast<size_t>(col)]);
  if (options.method == SaliencyMethod::kWanda) return static_cast<float>(magnitude * norm);
  double row_sum = 0;
  double col_sum = 0;
  for (int64_t k = 0; k < w.cols(); ++k) row_sum += std::fabs(w(row, k));
  for (int64_t k = 0; k < w.rows(); ++k) col_sum += std::fabs(w(k, col));
  const double share = (row_sum > 0 ? 1 / row_sum : 0) + (col_sum > 0 ? 1 / col_sum : 0);
  return static_cast<float>(magnitude * share * std::pow(norm, options.ria_exponent));
}

class SaliencyTest : public ::testing::TestWithParam<std::tuple<DType, SaliencyOptions>> {};

TEST_P(SaliencyTest, IsTheFormulaRoundedOnce) {
  const auto& [dtype, options] = GetParam();
  RandomLayer layer = MakeRandomLayer({.rows = 37, .cols = 53, .dead_columns = 3, .seed = 5});
  for (int64_t col = 0; col < 53; ++col) layer.weights(4, col) = 0;
  for (int64_t row = 0; row < 37; ++row) layer.weights(row, 9) = 0;
  const TypedMatrix weights(layer.weights.view(), dtype, 3);
  const std::vector<double> diagonal = DiagonalOf(layer.gram);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> scores,
                                ComputeSaliency(weights.view(), diagonal, options));
  const Matrix<double> exact = testing::ToDouble(weights.view());
  for (int64_t row = 0; row < 37; ++row) {
    for (int64_t col = 0; col < 53; ++col) {
      ASSERT_EQ(scores(row, col), Expected(exact, diagonal, options, row, col))
          << row << ", " << col;
    }
  }
}

TEST_P(SaliencyTest, SingleScoresAndRowsAreThoseOfTheMatrix) {
  const auto& [dtype, options] = GetParam();
  RandomLayer layer = MakeRandomLayer({.rows = 19, .cols = 31, .dead_columns = 2, .seed = 7});
  for (int64_t col = 0; col < 31; ++col) layer.weights(4, col) = 0;
  const TypedMatrix weights(layer.weights.view(), dtype, 3);
  const std::vector<double> diagonal = DiagonalOf(layer.gram);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> scores,
                                ComputeSaliency(weights.view(), diagonal, options));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SaliencySource source,
                                MakeSaliencySource(weights.view(), diagonal, options));
  ASSERT_EQ(source.rows(), 19);
  ASSERT_EQ(source.cols(), 31);
  std::vector<float> row_scores(31);
  for (int64_t row = 0; row < 19; ++row) {
    source.CopyRow(row, row_scores.data());
    for (int64_t col = 0; col < 31; ++col) {
      ASSERT_EQ(source.At(row, col), scores(row, col)) << row << ", " << col;
      ASSERT_EQ(row_scores[static_cast<size_t>(col)], scores(row, col)) << row << ", " << col;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SaliencyTest,
    ::testing::Combine(::testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                       ::testing::Values(SaliencyOptions{SaliencyMethod::kMagnitude},
                                         SaliencyOptions{SaliencyMethod::kWanda},
                                         SaliencyOptions{SaliencyMethod::kRia, 0.5},
                                         SaliencyOptions{SaliencyMethod::kRia, 1.0},
                                         SaliencyOptions{SaliencyMethod::kRia, 0.0})));

TEST(SaliencyTest, SameBitsOnAnyNumberOfThreads) {
  const RandomLayer layer = MakeRandomLayer({.rows = 100, .cols = 1200, .tokens = 4, .seed = 6});
  const std::vector<double> diagonal = DiagonalOf(layer.gram);
  absl::StatusOr<Matrix<float>> one;
  absl::StatusOr<Matrix<float>> many;
  const SaliencyOptions ria{SaliencyMethod::kRia, 0.5};
  SPARSEFW_ASSERT_OK(ParallelContext(1).Run([&] {
    one = ComputeSaliency(layer.weights.view(), diagonal, ria);
    return one.status();
  }));
  SPARSEFW_ASSERT_OK(ParallelContext(0).Run([&] {
    many = ComputeSaliency(layer.weights.view(), diagonal, ria);
    return many.status();
  }));
  SPARSEFW_ASSERT_OK(one);
  SPARSEFW_ASSERT_OK(many);
  EXPECT_EQ(std::memcmp(one->data(), many->data(), one->span().size_bytes()), 0);
}

TEST(SaliencyTest, ScoresOfTheCallersAreReadAsTheyAre) {
  const RandomLayer layer = MakeRandomLayer({.rows = 5, .cols = 9, .seed = 8});
  const TypedMatrix scores(layer.weights.view(), DType::kF32, 2);
  const SaliencySource source = scores.view();
  const Matrix<float> all = ScoresOf(source);
  std::vector<float> row_scores(9);
  for (int64_t row = 0; row < 5; ++row) {
    source.CopyRow(row, row_scores.data());
    for (int64_t col = 0; col < 9; ++col) {
      EXPECT_EQ(source.At(row, col), layer.weights(row, col));
      EXPECT_EQ(row_scores[static_cast<size_t>(col)], layer.weights(row, col));
      EXPECT_EQ(all(row, col), layer.weights(row, col));
    }
  }
}

// Times a power of two they choose the same weights, though float32 ends at 2^128.
TEST(SaliencyTest, NoScaleOfTheInputsChangesTheOrder) {
  const RandomLayer layer = MakeRandomLayer({.rows = 12, .cols = 40, .seed = 3});
  const std::vector<double> diagonal = DiagonalOf(layer.gram);
  for (const SaliencyOptions& options :
       {SaliencyOptions{SaliencyMethod::kWanda, 0}, SaliencyOptions{SaliencyMethod::kRia, 0.5},
        SaliencyOptions{SaliencyMethod::kRia, 4}}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> plain,
                                  ComputeSaliency(layer.weights.view(), diagonal, options));
    const Mask expected = *TopScores(plain.view(), Pattern::Unstructured(0.5));
    for (const auto& [of_weights, of_gram] :
         std::vector<std::pair<int, int>>{{100, 100}, {-100, -100}, {0, 200}, {0, -200}}) {
      Matrix<float> weights(layer.weights.rows(), layer.weights.cols());
      for (int64_t i = 0; i < weights.size(); ++i) {
        weights.data()[i] = std::ldexp(layer.weights.data()[i], of_weights);
      }
      std::vector<double> scaled = diagonal;
      for (double& value : scaled) value = std::ldexp(value, of_gram);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> scores,
                                    ComputeSaliency(weights.view(), scaled, options));
      EXPECT_EQ(*TopScores(scores.view(), Pattern::Unstructured(0.5)), expected)
          << of_weights << " " << of_gram;
    }
  }
}

// The factors of small entries would all be 0.
TEST(SaliencyTest, AnExponentThatUnderflowsKeepsTheOrder) {
  const RandomLayer layer = MakeRandomLayer({.rows = 12, .cols = 40, .seed = 3});
  std::vector<double> diagonal = DiagonalOf(layer.gram);
  for (size_t col = 0; col < diagonal.size(); ++col) {
    diagonal[col] = std::ldexp(1 + 1e-3 * static_cast<double>(col), -10);
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const Matrix<float> scores,
      ComputeSaliency(layer.weights.view(), diagonal, {SaliencyMethod::kRia, 200}));
  for (double& value : diagonal) value = std::ldexp(value, 10);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const Matrix<float> same,
      ComputeSaliency(layer.weights.view(), diagonal, {SaliencyMethod::kRia, 200}));
  const Pattern half = Pattern::Unstructured(0.5);
  EXPECT_EQ(*TopScores(scores.view(), half), *TopScores(same.view(), half));
  EXPECT_GT(scores(0, 39), 0);
}

TEST(SaliencyTest, MagnitudeNeedsNoGram) {
  const RandomLayer layer = MakeRandomLayer({.rows = 2, .cols = 3});
  SPARSEFW_EXPECT_OK(ComputeSaliency(layer.weights.view(), {}, {SaliencyMethod::kMagnitude}));
}

TEST(SaliencyTest, NamesWhatIsWrong) {
  const RandomLayer layer = MakeRandomLayer({.rows = 2, .cols = 3});
  const ConstMatrixView weights = layer.weights.view();
  const std::vector<double> diagonal = {1, 2, 3};
  const std::vector<double> two = {1, 2};
  EXPECT_THAT(ComputeSaliency(weights, two, {SaliencyMethod::kWanda}),
              StatusIs(StatusCode::kInvalidArgument, "SHAPE_MISMATCH", "got 2", "[2, 3]"));
  const std::vector<double> negative = {1, -2, 3};
  EXPECT_THAT(ComputeSaliency(weights, negative, {SaliencyMethod::kWanda}),
              StatusIs(StatusCode::kInvalidArgument, "GRAM_NEGATIVE_DIAGONAL", "gram[1, 1]=-2"));
  for (const double exponent : {-0.5, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_THAT(ComputeSaliency(weights, diagonal, {SaliencyMethod::kRia, exponent}),
                StatusIs(StatusCode::kInvalidArgument, "OPTION_INVALID", "ria_exponent"));
  }
  EXPECT_THAT(ComputeSaliency(layer.gram.view(), diagonal, {SaliencyMethod::kWanda}),
              StatusIs(StatusCode::kInvalidArgument, "DTYPE_UNSUPPORTED", "weights", "F64"));
}

// Times a weight of 0 it would be NaN, which has no order.
TEST(SaliencyErrorsTest, AnExponentThatOverflows) {
  const Matrix<float> weights(2, 2);
  const std::vector<double> diagonal = {1, 1e4};
  EXPECT_THAT(
      MakeSaliencySource(weights.view(), diagonal,
                         {.method = SaliencyMethod::kRia, .ria_exponent = 200})
          .status(),
      StatusIs(StatusCode::kInvalidArgument, "OPTION_INVALID", "got 200 with gram[1, 1]=10000"));
}

}  // namespace
}  // namespace sparsefw
