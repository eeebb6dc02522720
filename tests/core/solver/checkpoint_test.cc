// A solve that is interrupted and resumed from its last checkpoint is the solve
// that was not: every bit of its mask, weights, losses and reports.
#include "sparsefw/checkpoint.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/solver.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/core/solver/memory_checkpoints.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::EngineKind;
using ::sparsefw::testing::ExpectSameReport;
using ::sparsefw::testing::ExpectSameResult;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MemorySink;
using ::sparsefw::testing::NameOf;
using ::sparsefw::testing::RandomLayer;

class Trace final : public SolveObserver {
 public:
  void OnReport(const ProgressReport& report) override { reports.push_back(report); }
  std::vector<ProgressReport> reports;
};

// The resumed solve begins with the last report before the checkpoint.
void ExpectContinues(const std::vector<ProgressReport>& whole,
                     const std::vector<ProgressReport>& resumed) {
  ASSERT_FALSE(resumed.empty());
  ASSERT_LE(resumed.size(), whole.size());
  const size_t from = whole.size() - resumed.size();
  for (size_t i = 0; i < resumed.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameReport(whole[from + i], resumed[i]);
  }
}

struct OneSolve {
  absl::StatusOr<SolveResult> result = absl::UnknownError("not run");
  std::vector<ProgressReport> reports;
  std::vector<std::vector<std::byte>> checkpoints;
};

struct Layer {
  RandomLayer layer;
  Problem problem;
  SolveOptions options;
  const Backend* backend = nullptr;

  // Stops after that many checkpoints; 0: never.
  OneSolve Solve(std::span<const std::byte> resume = {}, size_t stop_after = 0) const {
    StopSignal stop;
    MemorySink sink;
    sink.on_commit = [&](size_t count) {
      if (count == stop_after) stop.Request();
    };
    Trace trace;
    OneSolve run;
    run.result = sparsefw::Solve(problem, options, *backend, &trace, &stop, {&sink, resume});
    run.reports = std::move(trace.reports);
    run.checkpoints = std::move(sink.checkpoints);
    return run;
  }
  OneSolve SolveWithout() const {
    Trace trace;
    OneSolve run;
    run.result = sparsefw::Solve(problem, options, *backend, &trace, nullptr);
    run.reports = std::move(trace.reports);
    return run;
  }
};

Layer MakeLayer(EngineKind kind, const Pattern& pattern, StepRule rule, double alpha,
                int64_t rows = 40, int64_t cols = 48) {
  Layer layer;
  layer.layer = MakeRandomLayer({.rows = rows, .cols = cols, .correlation = 0.9, .seed = 11});
  layer.problem.weights = layer.layer.weights.view();
  layer.problem.gram = layer.layer.gram.view();
  layer.problem.pattern = pattern;
  layer.options = {.alpha = alpha, .step_rule = rule, .threads = 2};
  // On the CPU with refreshes of E, at 500 among others; epochs have 50 iterations there, 16
  // with CUDA.
  const bool fast = kind == EngineKind::kCpuFloat64 || kind == EngineKind::kCpuFloat32;
  layer.options.iterations = fast ? 1070 : 80;
  layer.options.report_every = fast ? 125 : 35;
  layer.backend = *testing::BackendOf(kind);
  return layer;
}

// Interrupted after every checkpoint in turn, and resumed.
void ExpectEveryInterruptionHarmless(const Layer& layer) {
  const OneSolve plain = layer.SolveWithout();
  SPARSEFW_ASSERT_OK(plain.result);
  const OneSolve whole = layer.Solve();
  SPARSEFW_ASSERT_OK(whole.result);
  ExpectSameResult(*plain.result, *whole.result);
  ExpectContinues(plain.reports, whole.reports);
  ASSERT_EQ(plain.reports.size(), whole.reports.size());
  for (size_t k = 0; k < whole.checkpoints.size(); ++k) {
    SCOPED_TRACE("checkpoint " + std::to_string(k));
    const OneSolve first = layer.Solve({}, k + 1);
    ASSERT_EQ(first.checkpoints.size(), k + 1);
    const OneSolve second = layer.Solve(first.checkpoints.back());
    SPARSEFW_ASSERT_OK(second.result);
    ExpectSameResult(*plain.result, *second.result);
    ExpectContinues(plain.reports, second.reports);
    // From then on it writes the same checkpoints.
    EXPECT_EQ(second.checkpoints.size(), whole.checkpoints.size() - k - 1);
    if (::testing::Test::HasFailure()) return;
  }
}

using Param = std::tuple<EngineKind, Pattern, StepRule, double>;
class ResumeTest : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override { SPARSEFW_NEED_DEVICE(std::get<0>(GetParam())); }
  Layer layer() const {
    const auto& [kind, pattern, rule, alpha] = GetParam();
    // The emulated device takes a minute for hundreds of iterations.
    return IsCuda(kind) ? MakeLayer(kind, pattern, rule, alpha, 24, 36)
                        : MakeLayer(kind, pattern, rule, alpha);
  }
};

std::string NameOfParam(const Param& param) {
  const auto& [kind, pattern, rule, alpha] = param;
  return NameOf(kind) + "_" + NameOf(pattern) + "_" + std::string(NameOf(rule)) + "_alpha_" +
         std::to_string(static_cast<int>(10 * alpha));
}

INSTANTIATE_TEST_SUITE_P(
    All, ResumeTest,
    ::testing::Combine(::testing::Values(EngineKind::kReference, EngineKind::kCpuFloat64,
                                         EngineKind::kCudaFloat64),
                       ::testing::Values(Pattern::Unstructured(0.6), Pattern::PerRow(0.6),
                                         Pattern::KeepOfGroup(2, 4)),
                       ::testing::Values(StepRule::kOpenLoop, StepRule::kLineSearch),
                       ::testing::Values(0.0, 0.5, 0.9)),
    [](const auto& test) { return NameOfParam(test.param); });

TEST_P(ResumeTest, AnInterruptionChangesNothing) {
  const Layer solve = layer();
  ExpectEveryInterruptionHarmless(solve);
  EXPECT_EQ(solve.Solve().checkpoints.size(),
            std::get<0>(GetParam()) == EngineKind::kCpuFloat64 ? 8 : 2);
}

class ResumeOfEngineTest : public ::testing::TestWithParam<EngineKind> {
 protected:
  void SetUp() override { SPARSEFW_NEED_DEVICE(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(All, ResumeOfEngineTest,
                         ::testing::Values(EngineKind::kReference, EngineKind::kCpuFloat64,
                                           EngineKind::kCudaFloat64),
                         [](const auto& test) { return NameOf(test.param); });

// H has the same bits again.
TEST_P(ResumeOfEngineTest, WithAShrinkage) {
  Layer layer = MakeLayer(GetParam(), Pattern::PerRow(0.6), StepRule::kOpenLoop, 0.5, 24, 32);
  layer.options.iterations = 30;
  layer.options.report_every = 12;
  layer.options.shrinkage = 0.3;
  ExpectEveryInterruptionHarmless(layer);
  const OneSolve stopped = layer.Solve({}, 1);
  SPARSEFW_ASSERT_OK(stopped.result);
  EXPECT_EQ(stopped.result->stop_cause, StopCause::kCancelled);
  ASSERT_TRUE(stopped.result->unshrunk.has_value());
  const double loss =
      testing::NaiveLoss(layer.layer.weights.view(), layer.layer.gram.view(), stopped.result->mask);
  EXPECT_NEAR(stopped.result->unshrunk->result, loss, 1e-6 * loss);
  const OneSolve resumed = layer.Solve(stopped.checkpoints.back());
  SPARSEFW_ASSERT_OK(resumed.result);
  EXPECT_EQ(resumed.result->unshrunk->result, layer.SolveWithout().result->unshrunk->result);
}

TEST_P(ResumeOfEngineTest, SwapsAndReconstructionFollow) {
  for (const Pattern& pattern : {Pattern::Unstructured(0.6), Pattern::KeepOfGroup(2, 4)}) {
    Layer layer = MakeLayer(GetParam(), pattern, StepRule::kOpenLoop, 0.5, 24, 32);
    layer.options.iterations = 30;
    layer.options.report_every = 12;
    layer.options.swaps = true;
    layer.options.reconstruct = true;
    layer.options.keep_fixed = false;
    ExpectEveryInterruptionHarmless(layer);
    // Two while it iterates, one before either stage.
    EXPECT_EQ(layer.Solve().checkpoints.size(), 4);
  }
}

TEST_P(ResumeOfEngineTest, OneShotMethodsHaveOneBetweenSwapsAndReconstruction) {
  Layer layer = MakeLayer(GetParam(), Pattern::PerRow(0.6), StepRule::kOpenLoop, 0.2, 24, 32);
  layer.options.method = Method::kWanda;
  layer.options.swaps = true;
  layer.options.reconstruct = true;
  ExpectEveryInterruptionHarmless(layer);
  EXPECT_EQ(layer.Solve().checkpoints.size(), 1);
}

TEST_P(ResumeOfEngineTest, AStopAtTheGapIsTheSame) {
  Layer layer = MakeLayer(GetParam(), Pattern::PerRow(0.5), StepRule::kLineSearch, 0.5, 16, 24);
  layer.options.report_every = 5;
  layer.options.rel_gap = 0.3;
  layer.options.swaps = true;
  const OneSolve whole = layer.Solve();
  SPARSEFW_ASSERT_OK(whole.result);
  EXPECT_EQ(whole.result->stop_cause, StopCause::kGap);
  ExpectEveryInterruptionHarmless(layer);
}

// Resumed, interrupted at once, resumed, and so on until the end.
TEST_P(ResumeOfEngineTest, MayHappenAgainAndAgain) {
  Layer layer = MakeLayer(GetParam(), Pattern::Unstructured(0.6), StepRule::kOpenLoop, 0.5, 24, 32);
  layer.options.iterations = 60;
  layer.options.report_every = 7;
  layer.options.swaps = true;
  const OneSolve plain = layer.SolveWithout();
  SPARSEFW_ASSERT_OK(plain.result);
  std::vector<std::byte> checkpoint;
  OneSolve run;
  int solves = 0;
  for (; solves < 30; ++solves) {
    run = layer.Solve(checkpoint, 1);
    SPARSEFW_ASSERT_OK(run.result);
    if (run.result->stop_cause != StopCause::kCancelled) break;
    ASSERT_EQ(run.checkpoints.size(), 1);
    checkpoint = run.checkpoints[0];
  }
  EXPECT_EQ(solves, 9);
  ExpectSameResult(*plain.result, *run.result);
}

TEST_P(ResumeOfEngineTest, CallersSaliencyAndMaskAreInputsToo) {
  Layer layer = MakeLayer(GetParam(), Pattern::PerRow(0.5), StepRule::kOpenLoop, 0.5, 16, 24);
  layer.options.iterations = 40;
  layer.options.report_every = 15;
  const RandomLayer scores = MakeRandomLayer({.rows = 16, .cols = 24, .seed = 3});
  Matrix<float> saliency(16, 24);
  for (int64_t i = 0; i < saliency.size(); ++i) {
    saliency.data()[i] = scores.weights.data()[i] * scores.weights.data()[i];
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask warm, TopScores(saliency.view(), Pattern::PerRow(0.5)));
  layer.problem.saliency = saliency.view();
  layer.problem.warm_mask = &warm;
  ExpectEveryInterruptionHarmless(layer);
}

TEST_P(ResumeOfEngineTest, TimesAddUp) {
  Layer layer = MakeLayer(GetParam(), Pattern::PerRow(0.5), StepRule::kOpenLoop, 0.5, 16, 24);
  const OneSolve first = layer.Solve({}, 1);
  ASSERT_EQ(first.checkpoints.size(), 1);
  const OneSolve second = layer.Solve(first.checkpoints[0]);
  SPARSEFW_ASSERT_OK(second.result);
  ASSERT_FALSE(first.reports.empty());
  EXPECT_GT(second.reports.front().elapsed, first.reports.back().elapsed);
  EXPECT_GT(second.result->solve_time + second.result->load_time, first.reports.back().elapsed);
}

// Large enough for float32 iterates: no refresh, but row by row in epochs.
TEST(ResumeFloat32Test, LargeLayers) {
  for (const Pattern& pattern : {Pattern::Unstructured(0.6), Pattern::PerRow(0.6)}) {
    Layer layer = MakeLayer(EngineKind::kCpuFloat32, pattern, StepRule::kOpenLoop, 0.9, 4096, 256);
    layer.options.iterations = 130;
    layer.options.report_every = 35;
    ExpectEveryInterruptionHarmless(layer);
  }
}

}  // namespace
}  // namespace sparsefw
