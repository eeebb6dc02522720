// SparseGPT through Solve: the same result as plain loops, exact counts, dead
// inputs, damping, dtypes and threads.
#include "sparsefw/sparsegpt.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/src/parallel/parallel_context.h"
#include "core/src/sparsegpt/sparsegpt.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/solver.h"
#include "tests/core/sparsegpt/plain_sparsegpt.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::NaiveLoss;
using ::sparsefw::testing::PlainResult;
using ::sparsefw::testing::PlainSparseGpt;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StatusIs;
using ::sparsefw::testing::ToDouble;
using ::sparsefw::testing::TypedMatrix;

Problem ProblemOf(const RandomLayer& layer, const Pattern& pattern) {
  return {layer.weights.view(), layer.gram.view(), pattern, ConstMatrixView(), nullptr};
}

absl::StatusOr<SolveResult> RunSparseGpt(const Problem& problem,
                                         const SparseGptOptions& sparsegpt = {}, int threads = 0,
                                         const char* backend = "cpu") {
  return Solve(problem, {.method = Method::kSparseGpt, .sparsegpt = sparsegpt, .threads = threads},
               **FindBackend(backend), nullptr, nullptr);
}

std::string NameOf(const Pattern& pattern) {
  std::string name = ToString(pattern);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

void ExpectSame(const SolveResult& actual, const PlainResult& expected) {
  double largest = 0;
  for (const std::vector<double>& row : expected.weights) {
    for (const double value : row) largest = std::max(largest, std::fabs(value));
  }
  for (int64_t row = 0; row < actual.mask.rows(); ++row) {
    for (int64_t col = 0; col < actual.mask.cols(); ++col) {
      const auto r = static_cast<size_t>(row);
      const auto c = static_cast<size_t>(col);
      ASSERT_EQ(actual.mask.Get(row, col), expected.keep[r][c]) << row << ", " << col;
      const double weight = expected.weights[r][c];
      ASSERT_NEAR(static_cast<double>(actual.weights(row, col)), weight,
                  1e-7 * std::fabs(weight) + 1e-10 * largest)
          << row << ", " << col;
    }
  }
  EXPECT_EQ(actual.damping, expected.damping);
}

class SparseGptTest : public ::testing::TestWithParam<Pattern> {};

// 300 and 132 columns: not whole blocks of 128, several tiles of the factor.
INSTANTIATE_TEST_SUITE_P(Patterns, SparseGptTest,
                         ::testing::Values(Pattern::Unstructured(0.6), Pattern::Unstructured(0.29),
                                           Pattern::PerRow(0.5), Pattern::PerRow(0.37),
                                           Pattern::KeepOfGroup(2, 4), Pattern::KeepOfGroup(1, 3),
                                           Pattern::KeepOfGroup(5, 12)),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(SparseGptTest, IsWhatPlainLoopsGive) {
  struct Case {
    int64_t rows, cols, block;
  };
  // A multiple of the group at once, as the plain loops want it.
  const int64_t group =
      GetParam().kind == Pattern::Kind::kKeepOfGroup ? GetParam().group : int64_t{1};
  for (const Case& c : {Case{40, 300, 128}, {7, 132, 48}, {1, 24, 1000}, {33, 12, 12}}) {
    SCOPED_TRACE(::testing::Message() << c.rows << "x" << c.cols << " block " << c.block);
    const RandomLayer layer =
        MakeRandomLayer({.rows = c.rows, .cols = c.cols, .large_columns = c.cols > 20 ? 2 : 0});
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result,
                                  RunSparseGpt(ProblemOf(layer, GetParam()), {.block = c.block}));
    ExpectSame(result, PlainSparseGpt(ToDouble(layer.weights.view()), layer.gram, GetParam(), 0.01,
                                      c.block / group * group));
  }
}

TEST_P(SparseGptTest, CountsAreExact) {
  for (const int64_t block : {1, 5, 128}) {
    const RandomLayer layer = MakeRandomLayer({.rows = 11, .cols = 156, .seed = 2});
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result,
                                  RunSparseGpt(ProblemOf(layer, GetParam()), {.block = block}));
    SPARSEFW_EXPECT_OK(ValidateMaskCounts(result.mask, GetParam(), "result"));
    EXPECT_EQ(result.kept_count, GroupsOf(GetParam(), 11, 156).total_kept);
    for (int64_t i = 0; i < result.weights.size(); ++i) {
      if (result.mask.Get(i / 156, i % 156)) continue;
      ASSERT_EQ(result.weights.data()[i], 0) << i;
    }
  }
}

TEST_P(SparseGptTest, ReportsTheLossesOfMaskAndWeights) {
  const RandomLayer layer = MakeRandomLayer({.rows = 24, .cols = 96, .seed = 3});
  const Problem problem = ProblemOf(layer, GetParam());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, RunSparseGpt(problem));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SolveResult wanda,
      Solve(problem, {.method = Method::kWanda}, **FindBackend("cpu"), nullptr, nullptr));
  EXPECT_EQ(result.warm_start_loss, wanda.final_loss);
  EXPECT_EQ(result.full_loss, wanda.full_loss);
  EXPECT_NEAR(result.final_loss, NaiveLoss(problem.weights, problem.gram, result.mask),
              1e-11 * result.full_loss);
  EXPECT_EQ(result.relaxed_loss, result.final_loss);
  EXPECT_EQ(result.rounded_loss, result.final_loss);

  Matrix<float> difference(24, 96);
  for (int64_t i = 0; i < difference.size(); ++i) {
    difference.data()[i] = layer.weights.data()[i] - result.weights.data()[i];
  }
  EXPECT_NEAR(result.reconstructed_loss, NaiveLoss(difference.view(), problem.gram, Mask(24, 96)),
              1e-6 * result.reconstructed_loss);
  // On correlated inputs the new weights make up for much.
  EXPECT_LT(result.reconstructed_loss, 0.7 * result.final_loss);
  EXPECT_LT(result.reconstructed_loss, wanda.final_loss);
  EXPECT_EQ(result.relative_reduction, 1 - result.reconstructed_loss / wanda.final_loss);
  EXPECT_EQ(result.damping, 0.01);
  EXPECT_EQ(result.lower_bound, 0);
  EXPECT_EQ(result.iterations, 0);
  EXPECT_EQ(result.stop_cause, StopCause::kIterations);
}

TEST_P(SparseGptTest, SameBitsForAnyNumberOfThreads) {
  const RandomLayer layer = MakeRandomLayer({.rows = 300, .cols = 264, .seed = 4});
  const Problem problem = ProblemOf(layer, GetParam());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult expected, RunSparseGpt(problem, {}, 1));
  for (const int threads : {1, 2, 4}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult actual, RunSparseGpt(problem, {}, threads));
    EXPECT_EQ(actual.mask, expected.mask);
    EXPECT_EQ(std::memcmp(actual.weights.data(), expected.weights.data(),
                          expected.weights.span().size_bytes()),
              0);
    EXPECT_EQ(actual.final_loss, expected.final_loss);
    EXPECT_EQ(actual.reconstructed_loss, expected.reconstructed_loss);
  }
}

TEST_P(SparseGptTest, IsTheSameOnEveryBackend) {
  const RandomLayer layer = MakeRandomLayer({.rows = 8, .cols = 48, .seed = 5});
  const Problem problem = ProblemOf(layer, GetParam());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult cpu, RunSparseGpt(problem));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult reference,
                                RunSparseGpt(problem, {}, 0, "reference"));
  EXPECT_EQ(cpu.mask, reference.mask);
  EXPECT_NEAR(cpu.final_loss, reference.final_loss, 1e-12 * cpu.full_loss);
}

TEST_P(SparseGptTest, DeadInputsAreZeroAndPrunedFirst) {
  const RandomLayer layer =
      MakeRandomLayer({.rows = 9, .cols = 24, .large_columns = 1, .dead_columns = 2, .seed = 6});
  const Problem problem = ProblemOf(layer, GetParam());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, RunSparseGpt(problem));
  for (int64_t col = 0; col < 24; ++col) {
    if (layer.gram(col, col) != 0) continue;
    for (int64_t row = 0; row < 9; ++row) {
      EXPECT_FALSE(result.mask.Get(row, col)) << row << ", " << col;
      EXPECT_EQ(result.weights(row, col), 0);
    }
  }
}

// As sums in float16 leave it: the diagonal is flushed to 0, and what stands beside it is not.
TEST_P(SparseGptTest, ADeadInputWithACorrelationIsZero) {
  RandomLayer layer = MakeRandomLayer({.rows = 9, .cols = 24, .dead_columns = 2, .seed = 6});
  for (int64_t i = 0; i < 24 * 24; ++i) {
    const double largest = std::max(layer.gram(i / 24, i / 24), layer.gram(i % 24, i % 24));
    if (layer.gram.data()[i] == 0 && i / 24 != i % 24) layer.gram.data()[i] = 1e-3 * largest;
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result,
                                RunSparseGpt(ProblemOf(layer, GetParam())));
  for (int64_t i = 0; i < 9 * 24; ++i) {
    EXPECT_TRUE(layer.gram(i % 24, i % 24) != 0 || result.weights(i / 24, i % 24) == 0) << i;
  }
}

// With dead inputs too: the published code's 1 on the diagonal would not.
TEST_P(SparseGptTest, TheScaleOfGramAndWeightsDoesNotMatter) {
  const RandomLayer layer =
      MakeRandomLayer({.rows = 9, .cols = 36, .large_columns = 1, .dead_columns = 3, .seed = 7});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult plain,
                                RunSparseGpt(ProblemOf(layer, GetParam())));
  for (const double scale : {0x1p-100, 0x1p+100}) {
    Matrix<double> gram(36, 36);
    Matrix<float> weights(9, 36);
    for (int64_t i = 0; i < gram.size(); ++i) gram.data()[i] = scale * layer.gram.data()[i];
    for (int64_t i = 0; i < weights.size(); ++i) {
      weights.data()[i] = std::ldexp(layer.weights.data()[i], 20);
    }
    const Problem problem = {weights.view(), gram.view(), GetParam(), ConstMatrixView(), nullptr};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult scaled, RunSparseGpt(problem));
    EXPECT_EQ(scaled.mask, plain.mask);
    EXPECT_EQ(scaled.damping, plain.damping);
    for (int64_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(scaled.weights.data()[i], std::ldexp(plain.weights.data()[i], 20));
    }
  }
}

TEST_P(SparseGptTest, RoundsToTheDTypeOfTheWeights) {
  const RandomLayer layer = MakeRandomLayer({.rows = 9, .cols = 36, .seed = 8});
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const TypedMatrix typed(layer.weights.view(), dtype, 3);
    Problem problem = ProblemOf(layer, GetParam());
    problem.weights = typed.view();
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, RunSparseGpt(problem));
    const PlainResult plain =
        PlainSparseGpt(ToDouble(typed.view()), layer.gram, GetParam(), 0.01, 36);
    for (int64_t i = 0; i < result.weights.size(); ++i) {
      const float actual = result.weights.data()[i];
      const auto exact = static_cast<float>(
          plain.weights[static_cast<size_t>(i / 36)][static_cast<size_t>(i % 36)]);
      const float rounded =
          dtype == DType::kF16 ? ToFloat(ToHalf(exact)) : ToFloat(ToBFloat16(exact));
      EXPECT_EQ(actual, rounded) << DTypeName(dtype) << " " << i;
    }
  }
}

// [2, 1] and [1, 2] over G = [[1, 1/2], [1/2, 1]]: H^-1 = [[4, -2], [-2, 4]] / 3,
// U_00 = sqrt(4/3), U_11 = 1. Row 0 loses its last weight and nobody is right
// of it. Row 1 loses its first: the second becomes 2 + 1/2, the loss 3/4.
TEST(SparseGptHandTest, WorkedByHand) {
  Matrix<float> weights(2, 2);
  weights(0, 0) = weights(1, 1) = 2;
  weights(0, 1) = weights(1, 0) = 1;
  Matrix<double> gram(2, 2);
  gram(0, 0) = gram(1, 1) = 1;
  gram(0, 1) = gram(1, 0) = 0.5;
  const Problem problem = {weights.view(), gram.view(), Pattern::PerRow(0.5), ConstMatrixView(),
                           nullptr};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, RunSparseGpt(problem, {.damping = 0}));
  EXPECT_EQ(result.weights(0, 0), 2);
  EXPECT_EQ(result.weights(0, 1), 0);
  EXPECT_EQ(result.weights(1, 0), 0);
  EXPECT_EQ(result.weights(1, 1), 2.5F);
  EXPECT_EQ(result.final_loss, 1 + 1);
  EXPECT_DOUBLE_EQ(result.reconstructed_loss, 1 + 0.75);
  EXPECT_EQ(result.damping, 0);
}

TEST(SparseGptHandTest, TiesPruneTheLowerIndex) {
  Matrix<float> weights(2, 4);
  for (float& value : weights.span()) value = 1;
  Matrix<double> gram(4, 4);
  for (int64_t i = 0; i < 4; ++i) gram(i, i) = 1;
  const auto rows_of = [&](const Pattern& pattern, int64_t block) {
    const Problem problem = {weights.view(), gram.view(), pattern, ConstMatrixView(), nullptr};
    return ::sparsefw::testing::RowsOf(RunSparseGpt(problem, {.block = block})->mask);
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(rows_of(Pattern::Unstructured(0.5), 128), ElementsAre("0000", "1111"));
  EXPECT_THAT(rows_of(Pattern::Unstructured(0.5), 2), ElementsAre("0000", "1111"));
  EXPECT_THAT(rows_of(Pattern::PerRow(0.5), 128), ElementsAre("0011", "0011"));
  // 0.5, 1, 1.5 and 2 columns of a row are pruned up to each column's end.
  EXPECT_THAT(rows_of(Pattern::PerRow(0.5), 1), ElementsAre("1010", "1010"));
  EXPECT_THAT(rows_of(Pattern::KeepOfGroup(1, 2), 128), ElementsAre("0101", "0101"));
}

// Below Solve, which refuses this G.
TEST(SparseGptDampingTest, IsRaisedAndReported) {
  Matrix<float> weights(1, 2);
  weights(0, 0) = weights(0, 1) = 1;
  Matrix<double> gram(2, 2);
  gram(0, 0) = gram(1, 1) = 4;
  gram(0, 1) = gram(1, 0) = 4.5;  // eigenvalues -1/2 and 8.5, the mean of the diagonal is 4
  const Problem problem = {weights.view(), gram.view(), Pattern::PerRow(0.5), ConstMatrixView(),
                           nullptr};
  const ParallelContext context(1, nullptr);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(PrunedWeights result, sparsegpt::Prune(problem, {}, context));
  EXPECT_EQ(result.damping, 1);  // 0.01 and 0.1 are below 1/8
  SPARSEFW_ASSERT_OK_AND_ASSIGN(result, sparsegpt::Prune(problem, {.damping = 0.13}, context));
  EXPECT_EQ(result.damping, 0.13);
  EXPECT_EQ(result.weights(0, 0), 0);
  EXPECT_NEAR(result.weights(0, 1), 1 + 4.5 / (4 * 1.13), 1e-6);
}

// All correlations are -1/2: eigenvalues -3/2, and 3/2 for what sums to 0.
TEST(SparseGptDampingTest, NoDampingUpToOneIsEnough) {
  Matrix<float> weights(1, 6);
  Matrix<double> gram(6, 6);
  for (int64_t i = 0; i < 6; ++i) {
    weights(0, i) = i % 2 == 0 ? 1 : -1;
    for (int64_t j = 0; j < 6; ++j) gram(i, j) = i == j ? 1 : -0.5;
  }
  EXPECT_THAT(
      RunSparseGpt({weights.view(), gram.view(), Pattern::PerRow(0.5), ConstMatrixView(), nullptr}),
      StatusIs(absl::StatusCode::kInvalidArgument, "GRAM_NOT_POSITIVE_DEFINITE", "damping=1,"));
}

// Fewer tokens than inputs: singular, and nothing to raise.
TEST(SparseGptDampingTest, SingularGramsNeedNoMore) {
  const RandomLayer layer = MakeRandomLayer({.rows = 6, .cols = 160, .tokens = 20, .seed = 9});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result,
                                RunSparseGpt(ProblemOf(layer, Pattern::PerRow(0.5))));
  EXPECT_EQ(result.damping, 0.01);
  ExpectSame(result, PlainSparseGpt(ToDouble(layer.weights.view()), layer.gram,
                                    Pattern::PerRow(0.5), 0.01, 128));
}

TEST(SparseGptDegenerateTest, NoWeightsNoInputsNothingPrunedNothingKept) {
  const RandomLayer layer = MakeRandomLayer({.rows = 4, .cols = 8, .large_columns = 0});
  for (const Pattern& pattern :
       {Pattern::Unstructured(0.6), Pattern::PerRow(0.6), Pattern::KeepOfGroup(2, 4)}) {
    Matrix<float> no_weights(4, 8);
    Matrix<double> no_inputs(8, 8);
    Problem problem = ProblemOf(layer, pattern);
    problem.weights = no_weights.view();
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult zero, RunSparseGpt(problem));
    SPARSEFW_EXPECT_OK(ValidateMaskCounts(zero.mask, pattern, "result"));
    EXPECT_EQ(zero.reconstructed_loss, 0);
    EXPECT_EQ(zero.relative_reduction, 0);
    problem = ProblemOf(layer, pattern);
    problem.gram = no_inputs.view();
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult dead, RunSparseGpt(problem));
    SPARSEFW_EXPECT_OK(ValidateMaskCounts(dead.mask, pattern, "result"));
    EXPECT_EQ(dead.reconstructed_loss, 0);
    for (const float value : dead.weights.span()) EXPECT_EQ(value, 0);
  }
  for (const Pattern& pattern :
       {Pattern::Unstructured(0), Pattern::PerRow(0), Pattern::KeepOfGroup(4, 4)}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult all, RunSparseGpt(ProblemOf(layer, pattern)));
    EXPECT_EQ(all.kept_count, 32);
    EXPECT_EQ(std::memcmp(all.weights.data(), layer.weights.data(), 32 * sizeof(float)), 0);
  }
  for (const Pattern& pattern : {Pattern::Unstructured(1), Pattern::PerRow(1)}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult none, RunSparseGpt(ProblemOf(layer, pattern)));
    EXPECT_EQ(none.kept_count, 0);
    EXPECT_NEAR(none.reconstructed_loss, none.full_loss, 1e-12 * none.full_loss);
  }
}

TEST(SparseGptComparisonTest, IsWithTheWarmStartOfTheOptions) {
  const RandomLayer layer = MakeRandomLayer({.rows = 8, .cols = 24});
  const Problem problem = ProblemOf(layer, Pattern::PerRow(0.5));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SolveResult magnitude,
      Solve(problem, {.method = Method::kMagnitude}, **FindBackend("cpu"), nullptr, nullptr));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SolveResult result,
      Solve(problem,
            {.method = Method::kSparseGpt, .warm_start = {.method = SaliencyMethod::kMagnitude}},
            **FindBackend("cpu"), nullptr, nullptr));
  EXPECT_EQ(result.warm_start_loss, magnitude.final_loss);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult plain, RunSparseGpt(problem));
  EXPECT_NE(plain.warm_start_loss, magnitude.final_loss);
  EXPECT_EQ(result.mask, plain.mask);
}

TEST(SparseGptBytesTest, CoverTheLayerInFloat64AndLittleMore) {
  const Pattern pattern = Pattern::Unstructured(0.5);
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>(4096, 4096), {512, 8192}}) {
    const int64_t layer = 8 * cols * (rows + cols) + 4 * rows * cols;  // and weights
    EXPECT_GT(SparseGptBytes(rows, cols, pattern, {}), layer);
    EXPECT_LT(SparseGptBytes(rows, cols, pattern, {}), layer + layer / 4);
  }
  // A group wider than the block widens it.
  EXPECT_GT(SparseGptBytes(4096, 4096, Pattern::KeepOfGroup(1, 2048), {}),
            SparseGptBytes(4096, 4096, Pattern::KeepOfGroup(1, 2), {}) + 8 * 4096 * 1024);
}

// The first weight's part of the output moves to the second: 60000 * (1 + 0.9 / 1.01).
TEST(SparseGptOverflowTest, WeightsBeyondTheDTypeAreRefused) {
  Matrix<float> weights(1, 2);
  weights(0, 0) = weights(0, 1) = 60000;
  Matrix<double> gram(2, 2);
  gram(0, 0) = gram(1, 1) = 1;
  gram(0, 1) = gram(1, 0) = 0.9;
  const TypedMatrix typed(weights.view(), DType::kF16);
  Problem problem = {weights.view(), gram.view(), Pattern::PerRow(0.5), ConstMatrixView(), nullptr};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, RunSparseGpt(problem));
  EXPECT_NEAR(static_cast<double>(result.weights(0, 1)), 60000 * (1 + 0.9 / 1.01), 0.01);
  problem.weights = typed.view();
  EXPECT_THAT(RunSparseGpt(problem),
              StatusIs(absl::StatusCode::kInvalidArgument, "NON_FINITE", "F16", "[0, 1]", "113"));
}

}  // namespace
}  // namespace sparsefw
