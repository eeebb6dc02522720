// Properties that hold whatever path the engine takes: bounds proved against
// every mask there is, the paper's lemma, and properties of the problem.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "core/src/reference/reference_engine.h"
#include "gtest/gtest.h"
#include "sparsefw/problem.h"
#include "sparsefw/status_macros.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::BestMask;
using ::sparsefw::testing::ExhaustiveSearch;
using ::sparsefw::testing::IsSubset;
using ::sparsefw::testing::LoadedEngine;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::NaiveLoss;
using ::sparsefw::testing::Random;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StartingPoint;

std::string NameOf(const Pattern& pattern) {
  std::string name = ToString(pattern);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

class ExhaustiveTest : public ::testing::TestWithParam<std::tuple<Pattern, double, StepRule>> {};

TEST_P(ExhaustiveTest, CertificateBelowOptimumBelowOurLoss) {
  const auto& [pattern, alpha, rule] = GetParam();
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    const RandomLayer layer = MakeRandomLayer(
        {.rows = 1, .cols = 12, .correlation = seed % 2 == 0 ? 0.98 : 0.5, .seed = seed});
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const StartingPoint start,
        MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, alpha));
    const BestMask best =
        ExhaustiveSearch(layer.weights.view(), layer.gram.view(), pattern, &start.fixed);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(ReferenceBackend(), start));
    const double slack = 1e-9 * NaiveLoss(layer.weights.view(), layer.gram.view(), Mask(1, 12));
    for (const int64_t steps : {0, 1, 4, 200}) {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats,
                                    engine->Step({.count = steps, .rule = rule}));
      EXPECT_LE(stats.lower_bound, best.loss + slack);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine->Round());
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const double loss, engine->Loss(rounded.mask));
      EXPECT_GE(loss, best.loss - slack);
      EXPECT_TRUE(IsSubset(start.fixed, rounded.mask));
      SPARSEFW_EXPECT_OK(ValidateMaskCounts(rounded.mask, pattern, "rounded"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ExhaustiveTest,
    ::testing::Combine(::testing::Values(Pattern::Unstructured(0.6), Pattern::PerRow(0.5),
                                         Pattern::KeepOfGroup(2, 4), Pattern::KeepOfGroup(1, 3)),
                       ::testing::Values(0.0, 0.5, 0.9, 1.0),
                       ::testing::Values(StepRule::kOpenLoop, StepRule::kLineSearch)));

// The certificate is worth something: with enough steps the gap closes.
TEST(CertificateTest, ComesCloseToTheRelaxedOptimum) {
  const RandomLayer layer = MakeRandomLayer({.rows = 4, .cols = 16, .seed = 9});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.5), {}, 0.5));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(ReferenceBackend(), start));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine->Step({.count = 3000}));
  EXPECT_GT(stats.lower_bound, 0.98 * stats.relaxed_loss);
  EXPECT_LE(stats.lower_bound, stats.relaxed_loss);
}

// lambda_max of Q = Diag(w) G Diag(w), by power iteration from a positive vector.
double LargestEigenvalue(const RandomLayer& layer) {
  const int64_t n = layer.weights.cols();
  std::vector<double> x(static_cast<size_t>(n), 1);
  double value = 0;
  for (int iteration = 0; iteration < 2000; ++iteration) {
    std::vector<double> y(x.size());
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        y[static_cast<size_t>(i)] += static_cast<double>(layer.weights(0, i)) * layer.gram(i, j) *
                                     static_cast<double>(layer.weights(0, j)) *
                                     x[static_cast<size_t>(j)];
      }
    }
    value = std::sqrt(std::inner_product(y.begin(), y.end(), y.begin(), 0.0));
    for (size_t i = 0; i < x.size(); ++i) x[i] = y[i] / value;
  }
  return value;
}

// One row of positive weights and activations: all scores stay positive, so
// every vertex, and every iterate, has k in all, which the lemma asks for.
RandomLayer PositiveRow(int64_t cols, uint64_t seed) {
  RandomLayer layer = MakeRandomLayer({.rows = 1, .cols = cols, .seed = seed});
  for (float& value : layer.weights.span()) value = std::fabs(value) + 1e-3F;
  for (float& value : layer.activations.span()) value = std::fabs(value) + 1e-3F;
  layer.gram = testing::GramOf(layer.activations.view());
  return layer;
}

class LemmaTest : public ::testing::TestWithParam<std::tuple<double, uint64_t>> {};

// Section "Theoretical guarantee", formal lemma, equation (general-bound):
//   f(rounded) - f(best mask) <= eps + 2 lambda_max(Q) (min(k,r) + sqrt(2 r min(k,r)))
// with r = d_in - k; the gap is an upper bound of eps.
TEST_P(LemmaTest, RoundingLosesNoMoreThanTheBound) {
  const auto& [sparsity, seed] = GetParam();
  constexpr int64_t kCols = 11;
  const RandomLayer layer = PositiveRow(kCols, seed);
  const Pattern pattern = Pattern::PerRow(sparsity);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, /*alpha=*/0));
  const BestMask best = ExhaustiveSearch(layer.weights.view(), layer.gram.view(), pattern, nullptr);
  const auto k = static_cast<double>(start.warm.CountKept());
  const double r = kCols - k;
  const double smaller = std::min(k, r);
  const double lambda = LargestEigenvalue(layer);
  const double rounding = 2 * lambda * (smaller + std::sqrt(2 * r * smaller));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(ReferenceBackend(), start));
  for (const int64_t steps : {1, 2, 10, 100}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine->Step({.count = steps}));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine->Round());
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double loss, engine->Loss(rounded.mask));
    EXPECT_LE(loss - best.loss, stats.gap + rounding);
    // The lemma bounds the distance of M to its rounding by the worst case; the
    // measured one gives a bound that is close enough to be missed by a wrong
    // rounding. Entries differ by at most 1, so squares sum to at most the L1 norm.
    const double distance = lambda * rounded.threshold_residual * k;
    EXPECT_LE(std::sqrt(loss), std::sqrt(best.loss + stats.gap) + std::sqrt(distance) + 1e-9);
    // Optimisation error after t steps: 2 C / (t + 2) with the curvature
    // C <= 2 lambda_max(Q) * max ||M - V||^2 <= 2 lambda_max(Q) * 2 min(k, r).
    const double curvature = 4 * lambda * smaller;
    EXPECT_LE(stats.relaxed_loss - best.loss,
              2 * curvature / static_cast<double>(stats.iteration + 2));
  }
}

INSTANTIATE_TEST_SUITE_P(Random, LemmaTest,
                         ::testing::Combine(::testing::Values(0.3, 0.5, 0.6, 0.8),
                                            ::testing::Range(uint64_t{1}, uint64_t{8})));

class PropertyTest : public ::testing::TestWithParam<Pattern> {
 protected:
  struct Outcome {
    StepStats stats;
    RoundedMask rounded;
    double rounded_loss = 0;
    double warm_loss = 0;
    double full_loss = 0;
    StartingPoint start;
  };

  absl::StatusOr<Outcome> Run(const RandomLayer& layer, StepRule rule, int64_t steps) const {
    Outcome outcome;
    SPARSEFW_ASSIGN_OR_RETURN(outcome.start,
                              MakeStartingPoint(layer.weights.view(), layer.gram.view(), GetParam(),
                                                {.method = SaliencyMethod::kMagnitude}, 0.5));
    SPARSEFW_ASSIGN_OR_RETURN(auto engine, LoadedEngine(ReferenceBackend(), outcome.start));
    SPARSEFW_ASSIGN_OR_RETURN(outcome.stats, engine->Step({.count = steps, .rule = rule}));
    SPARSEFW_ASSIGN_OR_RETURN(outcome.rounded, engine->Round());
    SPARSEFW_ASSIGN_OR_RETURN(outcome.rounded_loss, engine->Loss(outcome.rounded.mask));
    SPARSEFW_ASSIGN_OR_RETURN(outcome.warm_loss, engine->Loss(outcome.start.warm));
    SPARSEFW_ASSIGN_OR_RETURN(outcome.full_loss, engine->Loss(Mask(layer.weights.rows(), 24)));
    return outcome;
  }
  RandomLayer layer_ = MakeRandomLayer({.rows = 10, .cols = 24, .dead_columns = 2, .seed = 13});
};

INSTANTIATE_TEST_SUITE_P(Patterns, PropertyTest,
                         ::testing::Values(Pattern::Unstructured(0.6), Pattern::PerRow(0.55),
                                           Pattern::KeepOfGroup(2, 4), Pattern::KeepOfGroup(5, 8)),
                         [](const auto& parameter) { return NameOf(parameter.param); });

TEST_P(PropertyTest, LossesAreThoseOfTheDefinition) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Outcome outcome, Run(layer_, StepRule::kOpenLoop, 30));
  const auto naive = [&](const Mask& mask) {
    return NaiveLoss(layer_.weights.view(), layer_.gram.view(), mask);
  };
  EXPECT_NEAR(outcome.rounded_loss, naive(outcome.rounded.mask), 1e-10 * outcome.full_loss);
  EXPECT_NEAR(outcome.warm_loss, naive(outcome.start.warm), 1e-10 * outcome.full_loss);
  EXPECT_NEAR(outcome.full_loss, naive(Mask(10, 24)), 1e-10 * outcome.full_loss);
}

TEST_P(PropertyTest, CountsAreExactAndTheFixedSetStays) {
  for (const StepRule rule : {StepRule::kOpenLoop, StepRule::kLineSearch}) {
    for (const int64_t steps : {0, 1, 3, 50}) {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const Outcome outcome, Run(layer_, rule, steps));
      SPARSEFW_EXPECT_OK(ValidateMaskCounts(outcome.rounded.mask, GetParam(), "rounded"));
      EXPECT_TRUE(IsSubset(outcome.start.fixed, outcome.rounded.mask));
      EXPECT_GE(outcome.stats.gap, 0);
    }
  }
}

TEST_P(PropertyTest, LineSearchNeverClimbs) {
  double last = 0;
  for (const int64_t steps : {0, 1, 2, 3, 5, 10, 40}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Outcome outcome, Run(layer_, StepRule::kLineSearch, steps));
    if (steps == 0) {
      EXPECT_NEAR(outcome.stats.relaxed_loss, outcome.warm_loss, 1e-10 * outcome.full_loss);
    } else {
      EXPECT_LE(outcome.stats.relaxed_loss, last + 1e-12 * outcome.full_loss);
    }
    last = outcome.stats.relaxed_loss;
  }
}

TEST_P(PropertyTest, PermutingRowsPermutesTheMask) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Outcome before, Run(layer_, StepRule::kLineSearch, 25));
  RandomLayer turned = MakeRandomLayer({.rows = 10, .cols = 24, .dead_columns = 2, .seed = 13});
  for (int64_t row = 0; row < 10; ++row) {
    std::copy_n(layer_.weights.row(row), 24, turned.weights.row((row + 3) % 10));
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Outcome after, Run(turned, StepRule::kLineSearch, 25));
  for (int64_t row = 0; row < 10; ++row) {
    for (int64_t col = 0; col < 24; ++col) {
      EXPECT_EQ(after.rounded.mask.Get((row + 3) % 10, col), before.rounded.mask.Get(row, col))
          << row << ", " << col;
    }
  }
  EXPECT_NEAR(after.stats.relaxed_loss, before.stats.relaxed_loss, 1e-9 * before.full_loss);
}

TEST_P(PropertyTest, ScalingGramScalesTheLosses) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Outcome before, Run(layer_, StepRule::kOpenLoop, 25));
  for (double& value : layer_.gram.span()) value *= 1024;  // exact in binary
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Outcome after, Run(layer_, StepRule::kOpenLoop, 25));
  EXPECT_EQ(after.rounded.mask, before.rounded.mask);
  EXPECT_EQ(after.stats.relaxed_loss, 1024 * before.stats.relaxed_loss);
  EXPECT_EQ(after.stats.gap, 1024 * before.stats.gap);
  EXPECT_EQ(after.stats.lower_bound, 1024 * before.stats.lower_bound);
  EXPECT_EQ(after.rounded_loss, 1024 * before.rounded_loss);
}

// Pruning the weights of a dead input costs nothing, so they go first.
TEST_P(PropertyTest, WeightsOfDeadInputsAreNeverFixed) {
  std::vector<int64_t> dead;
  for (int64_t col = 0; col < 24; ++col) {
    if (layer_.gram(col, col) == 0) dead.push_back(col);
  }
  ASSERT_EQ(dead.size(), 2U);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer_.weights.view(), layer_.gram.view(), GetParam(), {}, 0.5));
  for (int64_t row = 0; row < 10; ++row) {
    for (const int64_t col : dead) EXPECT_FALSE(start.fixed.Get(row, col)) << row << ", " << col;
  }
}

}  // namespace
}  // namespace sparsefw
