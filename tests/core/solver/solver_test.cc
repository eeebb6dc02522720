// Solve on real engines: what must hold for every layer.
#include "sparsefw/solver.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/solver/scripted_engine.h"
#include "tests/core/solver/solve_on_host.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::ExhaustiveSearch;
using ::sparsefw::testing::IsSubset;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::NaiveLoss;
using ::sparsefw::testing::Patterns;
using ::sparsefw::testing::ProblemOf;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::Reports;

class SolverTest : public ::sparsefw::testing::SolveOnHostTest {};

INSTANTIATE_TEST_SUITE_P(Backends, SolverTest, ::testing::Values("cpu", "reference"),
                         [](const auto& test) { return test.param; });

std::vector<double> Diagonal(const RandomLayer& layer) {
  std::vector<double> diagonal;
  for (int64_t i = 0; i < layer.gram.rows(); ++i) diagonal.push_back(layer.gram(i, i));
  return diagonal;
}

// Strongly correlated inputs and few steps are where plain rounding fails.
TEST_P(SolverTest, NeverWorseThanTheWarmStart) {
  int improved = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    for (const double correlation : {0.5, 0.99}) {
      const RandomLayer layer =
          MakeRandomLayer({.rows = 12, .cols = 24, .correlation = correlation, .seed = seed});
      for (const Pattern& pattern : Patterns()) {
        for (const double alpha : {0.0, 0.5, 0.9}) {
          for (const int64_t iterations : {1, 30}) {
            SCOPED_TRACE(::testing::Message() << "seed " << seed << " correlation " << correlation
                                              << " " << ToString(pattern) << " alpha " << alpha
                                              << " iterations " << iterations);
            SPARSEFW_ASSERT_OK_AND_ASSIGN(
                const SolveResult result,
                Run(ProblemOf(layer, pattern), {.alpha = alpha, .iterations = iterations}));
            EXPECT_LE(result.final_loss, result.warm_start_loss);
            EXPECT_NEAR(result.final_loss,
                        NaiveLoss(layer.weights.view(), layer.gram.view(), result.mask),
                        1e-11 * result.full_loss);
            EXPECT_LE(result.lower_bound, result.final_loss);
            EXPECT_GE(result.lower_bound, 0);
            EXPECT_GE(result.relative_reduction, 0);
            EXPECT_EQ(result.iterations, iterations);
            SPARSEFW_EXPECT_OK(ValidateMaskCounts(result.mask, pattern, "result"));
            EXPECT_EQ(result.kept_count, result.mask.CountKept());
            improved += result.candidate == CandidateKind::kRounded ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(improved, 20);
}

TEST_P(SolverTest, CertificateBelowOptimumBelowFinalLoss) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const RandomLayer layer = MakeRandomLayer({.rows = 1, .cols = 12, .seed = seed});
    for (const Pattern& pattern : {Pattern::Unstructured(0.5), Pattern::KeepOfGroup(1, 3)}) {
      for (const double alpha : {0.0, 0.5}) {
        SCOPED_TRACE(::testing::Message()
                     << "seed " << seed << " " << ToString(pattern) << " alpha " << alpha);
        SPARSEFW_ASSERT_OK_AND_ASSIGN(
            const SolveResult result,
            Run(ProblemOf(layer, pattern),
                {.alpha = alpha, .iterations = 300, .step_rule = StepRule::kLineSearch}));
        SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> saliency,
                                      ComputeSaliency(layer.weights.view(), Diagonal(layer), {}));
        SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask warm, TopScores(saliency.view(), pattern));
        SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask fixed,
                                      FixedSet(saliency.view(), warm, pattern, alpha));
        const double best =
            ExhaustiveSearch(layer.weights.view(), layer.gram.view(), pattern, &fixed).loss;
        EXPECT_LE(result.lower_bound, best * (1 + 1e-9));
        EXPECT_GT(result.lower_bound, 0);
        EXPECT_GE(result.final_loss, best * (1 - 1e-9));
        EXPECT_TRUE(IsSubset(fixed, result.mask));
      }
    }
  }
}

TEST_P(SolverTest, PermutingRowsPermutesTheMask) {
  const RandomLayer layer = MakeRandomLayer({.rows = 9, .cols = 16, .seed = 5});
  Matrix<float> reversed(9, 16);
  for (int64_t row = 0; row < 9; ++row) {
    std::copy_n(layer.weights.row(row), 16, reversed.row(8 - row));
  }
  for (const Pattern& pattern : {Pattern::PerRow(0.5), Pattern::KeepOfGroup(2, 4)}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult plain,
                                  Run(ProblemOf(layer, pattern), {.iterations = 50}));
    Problem problem = ProblemOf(layer, pattern);
    problem.weights = reversed.view();
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult permuted, Run(problem, {.iterations = 50}));
    for (int64_t row = 0; row < 9; ++row) {
      EXPECT_TRUE(
          std::equal(plain.mask.row(row), plain.mask.row(row) + 2, permuted.mask.row(8 - row)));
    }
    EXPECT_NEAR(permuted.final_loss, plain.final_loss, 1e-12 * plain.final_loss);
  }
}

TEST_P(SolverTest, ScalingGramScalesTheLossesAndKeepsTheMask) {
  const RandomLayer layer = MakeRandomLayer({.rows = 8, .cols = 20, .seed = 6});
  for (const Pattern& pattern : Patterns()) {
    const SolveOptions options = {.alpha = 0.5, .iterations = 40};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult plain, Run(ProblemOf(layer, pattern), options));
    for (const double scale : {1e-20, 1e-5, 1e20}) {
      SCOPED_TRACE(scale);
      Matrix<double> gram(20, 20);
      for (int64_t i = 0; i < 400; ++i) gram.data()[i] = scale * layer.gram.data()[i];
      Problem problem = ProblemOf(layer, pattern);
      problem.gram = gram.view();
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult scaled, Run(problem, options));
      EXPECT_EQ(scaled.mask, plain.mask);
      EXPECT_NEAR(scaled.final_loss / scale, plain.final_loss, 1e-9 * plain.final_loss);
      EXPECT_NEAR(scaled.lower_bound / scale, plain.lower_bound, 1e-9 * plain.final_loss);
    }
  }
}

TEST_P(SolverTest, SameMaskForAnyNumberOfThreads) {
  const RandomLayer layer = MakeRandomLayer({.rows = 300, .cols = 24, .seed = 7});
  for (const Pattern& pattern : Patterns()) {
    SolveOptions options = {.alpha = 0.5, .iterations = 25, .report_every = 10, .threads = 1};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult expected,
                                  Run(ProblemOf(layer, pattern), options));
    for (const int threads : {1, 2, 4}) {
      options.threads = threads;
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult actual,
                                    Run(ProblemOf(layer, pattern), options));
      EXPECT_EQ(actual.mask, expected.mask);
      EXPECT_EQ(actual.final_loss, expected.final_loss);
      EXPECT_EQ(actual.relaxed_loss, expected.relaxed_loss);
      EXPECT_EQ(actual.lower_bound, expected.lower_bound);
    }
  }
}

TEST_P(SolverTest, OneShotMethodsKeepTheTopScores) {
  const RandomLayer layer = MakeRandomLayer({.rows = 6, .cols = 16, .seed = 8});
  const std::pair<Method, SaliencyMethod> methods[] = {
      {Method::kMagnitude, SaliencyMethod::kMagnitude},
      {Method::kWanda, SaliencyMethod::kWanda},
      {Method::kRia, SaliencyMethod::kRia}};
  for (const Pattern& pattern : Patterns()) {
    for (const auto& [method, saliency_method] : methods) {
      const SaliencyOptions saliency_options = {.method = saliency_method, .ria_exponent = 0.7};
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const Matrix<float> saliency,
          ComputeSaliency(layer.weights.view(), Diagonal(layer), saliency_options));
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask expected, TopScores(saliency.view(), pattern));
      // The caller's own start is for SparseFW only.
      Matrix<float> ignored(6, 16);
      Problem problem = ProblemOf(layer, pattern);
      problem.saliency = ignored.view();
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const SolveResult result,
          Run(problem, {.method = method, .warm_start = {.ria_exponent = 0.7}}));
      EXPECT_EQ(result.mask, expected);
      EXPECT_EQ(result.candidate, CandidateKind::kWarmStart);
      EXPECT_EQ(result.iterations, 0);
      EXPECT_EQ(result.lower_bound, 0);
      EXPECT_EQ(result.relaxed_loss, result.final_loss);
      EXPECT_EQ(result.rounded_loss, result.final_loss);
      EXPECT_EQ(result.warm_start_loss, result.final_loss);
    }
  }
}

TEST_P(SolverTest, AlphaOneReturnsTheWarmStartWithATightCertificate) {
  const RandomLayer layer = MakeRandomLayer({.rows = 6, .cols = 16, .seed = 10});
  for (const Pattern& pattern : Patterns()) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result,
                                  Run(ProblemOf(layer, pattern), {.alpha = 1, .iterations = 20}));
    EXPECT_EQ(result.candidate, CandidateKind::kWarmStart);
    EXPECT_EQ(result.final_loss, result.warm_start_loss);
    EXPECT_EQ(result.iterations, 20);
    EXPECT_NEAR(result.lower_bound, result.final_loss, 1e-6 * result.final_loss);
  }
}

TEST_P(SolverTest, StopsAtTheGap) {
  const RandomLayer layer = MakeRandomLayer({.rows = 6, .cols = 16, .correlation = 0.3});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SolveResult result,
      Run(ProblemOf(layer, Pattern::PerRow(0.5)),
          {.iterations = 100'000, .step_rule = StepRule::kLineSearch, .rel_gap = 0.01}));
  EXPECT_EQ(result.stop_cause, StopCause::kGap);
  EXPECT_LT(result.iterations, 100'000);
  EXPECT_GE(result.lower_bound, 0.98 * result.relaxed_loss);
}

TEST_P(SolverTest, AutoIsLineSearchThatStopsAtItsGap) {
  const RandomLayer layer = MakeRandomLayer({.rows = 6, .cols = 16, .correlation = 0.3});
  const Problem problem = ProblemOf(layer, Pattern::PerRow(0.5));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SolveResult result,
      Run(problem, {.iterations = 100'000, .step_rule = StepRule::kAuto}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SolveResult expected,
      Run(problem,
          {.iterations = 100'000, .step_rule = StepRule::kLineSearch, .rel_gap = kAutoRelGap}));
  EXPECT_EQ(result.stop_cause, StopCause::kGap);
  EXPECT_EQ(result.iterations, expected.iterations);
  EXPECT_EQ(result.mask, expected.mask);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SolveResult sooner,
      Run(problem, {.iterations = 100'000, .step_rule = StepRule::kAuto, .rel_gap = 0.05}));
  EXPECT_LT(sooner.iterations, result.iterations);
}

TEST_P(SolverTest, ReportsAtReportPointsAndNeverGetsWorse) {
  const RandomLayer layer = MakeRandomLayer({.rows = 6, .cols = 16, .seed = 11});
  Reports observer;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SolveResult result,
      Run(ProblemOf(layer, Pattern::Unstructured(0.5)),
          {.alpha = 0.3, .iterations = 45, .report_every = 10}, &observer));
  ASSERT_EQ(observer.reports.size(), 5U);
  for (size_t i = 0; i < 5; ++i) {
    const ProgressReport& report = observer.reports[i];
    EXPECT_EQ(report.iteration, i == 4 ? 45 : 10 * (static_cast<int64_t>(i) + 1));
    EXPECT_EQ(report.iterations_total, 45);
    EXPECT_GE(report.gap, 0);
    EXPECT_LE(report.lower_bound, report.best_loss);
    EXPECT_LE(report.best_loss, std::min(report.rounded_loss, result.warm_start_loss));
    EXPECT_GE(report.elapsed, absl::ZeroDuration());
    if (i == 0) continue;
    EXPECT_LE(report.best_loss, observer.reports[i - 1].best_loss);
    EXPECT_GE(report.lower_bound, observer.reports[i - 1].lower_bound);
  }
  EXPECT_EQ(observer.reports.back().best_loss, result.final_loss);
  EXPECT_EQ(observer.reports.back().relaxed_loss, result.relaxed_loss);
}

}  // namespace
}  // namespace sparsefw
