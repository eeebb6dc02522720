// Solve with inputs that it refuses, that leave nothing to choose or that bring their own start.
#include <cmath>
#include <cstdint>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/solver.h"
#include "tests/core/solver/solve_on_host.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::Patterns;
using ::sparsefw::testing::ProblemOf;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StatusIs;

class SolverInputsTest : public ::sparsefw::testing::SolveOnHostTest {};

INSTANTIATE_TEST_SUITE_P(Backends, SolverInputsTest, ::testing::Values("cpu", "reference"),
                         [](const auto& test) { return test.param; });

// Correlations of -1/2 between all inputs pass entry by entry, but no
// activations have them.
TEST_P(SolverInputsTest, RefusesAnIndefiniteGram) {
  RandomLayer layer = MakeRandomLayer({.rows = 2, .cols = 32});
  for (int64_t i = 0; i < 32; ++i) {
    for (int64_t j = 0; j < 32; ++j) layer.gram(i, j) = i == j ? 1 : -0.5;
  }
  for (float& weight : layer.weights.span()) weight = 1;
  SPARSEFW_EXPECT_OK(ValidateProblem(ProblemOf(layer, Pattern::PerRow(0.5))));
  for (const Method method : {Method::kWanda, Method::kSparseFw}) {
    EXPECT_THAT(Run(ProblemOf(layer, Pattern::PerRow(0.5)), {.method = method, .iterations = 3}),
                StatusIs(absl::StatusCode::kInvalidArgument, "GRAM_NOT_POSITIVE_DEFINITE",
                         "no loss is below 0"));
  }
}

TEST_P(SolverInputsTest, ALossBelowZeroByRoundingIsZero) {
  RandomLayer layer = MakeRandomLayer({.rows = 1, .cols = 2});
  layer.gram(0, 0) = layer.gram(1, 1) = 1;
  layer.gram(0, 1) = layer.gram(1, 0) = 1 + 1e-6;  // equal inputs, up to rounding
  layer.weights(0, 0) = 1;
  layer.weights(0, 1) = -1;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SolveResult result,
      Run(ProblemOf(layer, Pattern::PerRow(1)), {.method = Method::kSparseFw, .iterations = 3}));
  EXPECT_EQ(result.full_loss, 0);
  EXPECT_EQ(result.final_loss, 0);
  EXPECT_LE(result.lower_bound, result.final_loss);
}

TEST_P(SolverInputsTest, StartsFromTheCallersSaliency) {
  const RandomLayer layer = MakeRandomLayer({.rows = 5, .cols = 12, .seed = 9});
  Matrix<float> saliency(5, 12);
  std::iota(saliency.data(), saliency.data() + 60, -30.0F);
  Problem problem = ProblemOf(layer, Pattern::Unstructured(0.5));
  problem.saliency = saliency.view();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result,
                                Run(problem, {.alpha = 1, .iterations = 3}));
  for (int64_t i = 0; i < 60; ++i) EXPECT_EQ(result.mask.Get(i / 12, i % 12), i >= 30);
}

TEST_P(SolverInputsTest, StartsFromTheCallersMask) {
  const RandomLayer layer = MakeRandomLayer({.rows = 2, .cols = 8, .seed = 9});
  const Mask warm = ::sparsefw::testing::MaskFromRows({"01010101", "11110000"});
  Problem problem = ProblemOf(layer, Pattern::PerRow(0.5));
  problem.warm_mask = &warm;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult fixed,
                                Run(problem, {.alpha = 1, .iterations = 3}));
  EXPECT_EQ(fixed.mask, warm);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult free,
                                Run(problem, {.alpha = 0, .iterations = 100}));
  EXPECT_EQ(free.warm_start_loss, fixed.warm_start_loss);
  EXPECT_LE(free.final_loss, fixed.final_loss);
}

TEST_P(SolverInputsTest, RefusesAMaskWithAWrongCount) {
  const RandomLayer layer = MakeRandomLayer({.rows = 2, .cols = 8, .seed = 9});
  const Mask warm = ::sparsefw::testing::MaskFromRows({"01010101", "11110001"});
  Problem problem = ProblemOf(layer, Pattern::PerRow(0.5));
  problem.warm_mask = &warm;
  EXPECT_THAT(Run(problem, {}), StatusIs(absl::StatusCode::kInvalidArgument, "WARM_MASK_COUNT"));
}

TEST_P(SolverInputsTest, RefusesBadOptionsAndBadInputs) {
  RandomLayer layer = MakeRandomLayer({.rows = 2, .cols = 8, .seed = 9});
  EXPECT_THAT(Run(ProblemOf(layer, Pattern::PerRow(0.5)), {.alpha = 7}),
              StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID", "alpha=7"));
  EXPECT_THAT(Run(ProblemOf(layer, Pattern::PerRow(1.5)), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "PATTERN_INVALID"));
  layer.weights(1, 3) = NAN;
  EXPECT_THAT(Run(ProblemOf(layer, Pattern::PerRow(0.5)), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "NON_FINITE", "[1, 3]"));
}

TEST_P(SolverInputsTest, RefusesLossesThatOverflow) {
  Matrix<float> weights(1, 2);
  weights(0, 0) = weights(0, 1) = 1e38F;
  Matrix<double> gram(2, 2);
  gram(0, 0) = gram(1, 1) = 1e300;
  const Problem problem = {weights.view(), gram.view(), Pattern::PerRow(0.5), ConstMatrixView(),
                           nullptr};
  EXPECT_THAT(Run(problem, {.method = Method::kMagnitude}),
              StatusIs(absl::StatusCode::kInvalidArgument, "NON_FINITE", "overflows"));
}

TEST_P(SolverInputsTest, DegenerateLayers) {
  for (const Pattern& pattern : Patterns()) {
    SCOPED_TRACE(ToString(pattern));
    RandomLayer zero_weights = MakeRandomLayer({.rows = 4, .cols = 8, .seed = 1});
    for (float& value : zero_weights.weights.span()) value = 0;
    RandomLayer zero_gram = MakeRandomLayer({.rows = 4, .cols = 8, .seed = 1});
    for (double& value : zero_gram.gram.span()) value = 0;
    for (const RandomLayer* layer : {&zero_weights, &zero_gram}) {
      for (const StepRule rule : {StepRule::kOpenLoop, StepRule::kLineSearch}) {
        SPARSEFW_ASSERT_OK_AND_ASSIGN(
            const SolveResult result,
            Run(ProblemOf(*layer, pattern), {.alpha = 0.5, .iterations = 10, .step_rule = rule}));
        EXPECT_EQ(result.full_loss, 0);
        EXPECT_EQ(result.final_loss, 0);
        EXPECT_EQ(result.relaxed_loss, 0);
        EXPECT_EQ(result.lower_bound, 0);
        EXPECT_EQ(result.relative_reduction, 0);
        SPARSEFW_EXPECT_OK(ValidateMaskCounts(result.mask, pattern, "result"));
      }
    }
  }
}

TEST_P(SolverInputsTest, DeadInputsArePrunedFirst) {
  const RandomLayer layer =
      MakeRandomLayer({.rows = 5, .cols = 16, .large_columns = 1, .dead_columns = 6, .seed = 3});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SolveResult result,
      Run(ProblemOf(layer, Pattern::PerRow(0.5)), {.alpha = 0.5, .iterations = 60}));
  for (int64_t col = 0; col < 16; ++col) {
    if (layer.gram(col, col) != 0) continue;
    for (int64_t row = 0; row < 5; ++row) EXPECT_FALSE(result.mask.Get(row, col));
  }
}

TEST_P(SolverInputsTest, KeepingEverythingAndNothing) {
  const RandomLayer layer = MakeRandomLayer({.rows = 4, .cols = 8, .seed = 4});
  for (const Pattern& pattern :
       {Pattern::Unstructured(0), Pattern::PerRow(0), Pattern::KeepOfGroup(4, 4)}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult all,
                                  Run(ProblemOf(layer, pattern), {.iterations = 5}));
    EXPECT_EQ(all.kept_count, 32);
    EXPECT_EQ(all.final_loss, 0);
    EXPECT_EQ(all.relative_reduction, 0);
    EXPECT_GT(all.full_loss, 0);
  }
  for (const Pattern& pattern : {Pattern::Unstructured(1), Pattern::PerRow(1)}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult none,
                                  Run(ProblemOf(layer, pattern), {.iterations = 5}));
    EXPECT_EQ(none.kept_count, 0);
    EXPECT_EQ(none.final_loss, none.full_loss);
    EXPECT_NEAR(none.lower_bound, none.full_loss, 1e-6 * none.full_loss);
  }
}

}  // namespace
}  // namespace sparsefw
