// Properties of the CPU engine alone: determinism, refreshes, scales, precision.
#include "core/src/cpu/runtime/cpu_engine.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/problem.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::EngineKind;
using ::sparsefw::testing::IsCuda;
using ::sparsefw::testing::kFastEngines;
using ::sparsefw::testing::LoadedEngine;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::NameOf;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StartingPoint;

struct Outcome {
  StepStats stats;
  RoundedMask rounded;
};

void ExpectSameBits(const Outcome& a, const Outcome& b) {
  const auto bits = [](double value) { return std::bit_cast<uint64_t>(value); };
  EXPECT_EQ(bits(a.stats.relaxed_loss), bits(b.stats.relaxed_loss));
  EXPECT_EQ(bits(a.stats.gap), bits(b.stats.gap));
  EXPECT_EQ(bits(a.stats.lower_bound), bits(b.stats.lower_bound));
  EXPECT_EQ(bits(a.stats.step_size), bits(b.stats.step_size));
  EXPECT_EQ(bits(a.rounded.threshold_residual), bits(b.rounded.threshold_residual));
  EXPECT_EQ(a.rounded.mask, b.rounded.mask);
}

using Param = std::tuple<EngineKind, Pattern, StepRule, double>;

std::string DeterminismTestName(const Param& param) {
  const auto& [kind, pattern, rule, alpha] = param;
  return NameOf(kind) + "_" + NameOf(pattern) + "_" + std::string(NameOf(rule)) + "_" +
         (alpha == 0 ? "alpha_0" : "alpha_09");
}

class DeterminismTest : public ::testing::TestWithParam<Param> {
 protected:
  // Runs `batches` of steps.
  Outcome Run(int threads, const std::vector<int64_t>& batches) {
    Outcome outcome;
    auto engine = LoadedEngine(std::get<EngineKind>(GetParam()), start_, {.threads = threads});
    SPARSEFW_EXPECT_OK(engine);
    for (const int64_t count : batches) {
      auto stats = (*engine)->Step({.count = count, .rule = std::get<StepRule>(GetParam())});
      SPARSEFW_EXPECT_OK(stats);
      outcome.stats = *stats;
    }
    auto rounded = (*engine)->Round();
    SPARSEFW_EXPECT_OK(rounded);
    outcome.rounded = *std::move(rounded);
    return outcome;
  }

  void SetUp() override {
    SPARSEFW_NEED_DEVICE(std::get<EngineKind>(GetParam()));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        start_, MakeStartingPoint(layer_.weights.view(), layer_.gram.view(),
                                  std::get<Pattern>(GetParam()), {}, std::get<double>(GetParam())));
  }

  // Several blocks of rows, the last of them not full. An emulated device takes
  // a millisecond a row.
  const RandomLayer layer_ = MakeRandomLayer(
      {.rows = IsCuda(std::get<EngineKind>(GetParam())) ? 30 : 1100, .cols = 60, .seed = 4});
  StartingPoint start_;
};

TEST_P(DeterminismTest, SameBitsForAnyNumberOfThreadsAndOfBatches) {
  const Outcome once = Run(1, {30});
  ExpectSameBits(Run(1, {30}), once);
  ExpectSameBits(Run(2, {30}), once);
  ExpectSameBits(Run(4, {30}), once);
  ExpectSameBits(Run(2, {0, 1, 2, 3, 4, 20}), once);
}

INSTANTIATE_TEST_SUITE_P(
    All, DeterminismTest,
    ::testing::Combine(::testing::ValuesIn(kFastEngines),
                       ::testing::Values(Pattern::Unstructured(0.6), Pattern::PerRow(0.6),
                                         Pattern::KeepOfGroup(2, 4)),
                       ::testing::Values(StepRule::kOpenLoop, StepRule::kLineSearch),
                       ::testing::Values(0.0, 0.9)),
    [](const auto& test) { return DeterminismTestName(test.param); });

using RefreshParam = std::tuple<EngineKind, Pattern, StepRule>;

std::string RefreshTestName(const RefreshParam& param) {
  const auto& [kind, pattern, rule] = param;
  return NameOf(kind) + "_" + NameOf(pattern) + "_" + std::string(NameOf(rule));
}

class RefreshTest : public ::testing::TestWithParam<RefreshParam> {
 protected:
  void SetUp() override { SPARSEFW_NEED_DEVICE(std::get<EngineKind>(GetParam())); }
};

// Long enough for two refreshes; at alpha = 0.9 the paths stay together.
TEST_P(RefreshTest, LossStaysThatOfTheReferenceFor1100Iterations) {
  const auto& [kind, pattern, rule] = GetParam();
  const RandomLayer layer = MakeRandomLayer({.rows = 12, .cols = 40, .seed = 6});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, 0.9));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto reference, LoadedEngine(EngineKind::kReference, start));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(kind, start));
  for (const int64_t steps : {499, 1, 1, 498, 1, 100}) {
    const StepRequest request = {.count = steps, .rule = rule};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats expected, reference->Step(request));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats actual, engine->Step(request));
    EXPECT_EQ(actual.iteration, expected.iteration);
    EXPECT_NEAR(actual.relaxed_loss, expected.relaxed_loss, 1e-5 * expected.relaxed_loss)
        << "iteration " << actual.iteration;
    EXPECT_LE(actual.lower_bound, (1 + 1e-6) * expected.relaxed_loss);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RefreshTest,
    ::testing::Combine(::testing::ValuesIn(kFastEngines),
                       ::testing::Values(Pattern::Unstructured(0.6), Pattern::PerRow(0.6),
                                         Pattern::KeepOfGroup(2, 4)),
                       ::testing::Values(StepRule::kOpenLoop, StepRule::kLineSearch)),
    [](const auto& test) { return RefreshTestName(test.param); });

class ScaleTest : public ::testing::TestWithParam<std::tuple<EngineKind, int, int>> {
 protected:
  void SetUp() override { SPARSEFW_NEED_DEVICE(std::get<EngineKind>(GetParam())); }
};

// Powers of two change no bit of the computation.
TEST_P(ScaleTest, UnitsDoNotMatter) {
  const auto& [kind, weight_exponent, gram_exponent] = GetParam();
  const RandomLayer plain = MakeRandomLayer({.rows = 10, .cols = 24, .seed = 2});
  RandomLayer scaled = MakeRandomLayer({.rows = 10, .cols = 24, .seed = 2});
  for (float& w : scaled.weights.span()) w = std::ldexp(w, weight_exponent);
  for (double& g : scaled.gram.span()) g = std::ldexp(g, gram_exponent);
  StepStats stats[2];
  Mask masks[2];
  double losses[2];
  for (const int i : {0, 1}) {
    const RandomLayer& layer = i == 0 ? plain : scaled;
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        StartingPoint start,
        MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.5), {}, 0.5));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(kind, start));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(stats[i], engine->Step({.count = 20}));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(RoundedMask rounded, engine->Round());
    masks[i] = std::move(rounded.mask);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(losses[i], engine->Loss(masks[i]));
  }
  const int exponent = 2 * weight_exponent + gram_exponent;
  EXPECT_EQ(stats[1].relaxed_loss, std::ldexp(stats[0].relaxed_loss, exponent));
  EXPECT_EQ(stats[1].gap, std::ldexp(stats[0].gap, exponent));
  EXPECT_EQ(losses[1], std::ldexp(losses[0], exponent));
  EXPECT_EQ(masks[1], masks[0]);
}

// Saliencies are float32 and must stay in range themselves.
INSTANTIATE_TEST_SUITE_P(All, ScaleTest,
                         ::testing::Combine(::testing::ValuesIn(kFastEngines),
                                            ::testing::Values(-60, 0, 60),
                                            ::testing::Values(-90, 0, 90)),
                         [](const auto& test) {
                           return NameOf(std::get<0>(test.param)) + "_" +
                                  std::to_string(test.index);
                         });

TEST(PrecisionTest, SmallLayersAreComputedInFloat64) {
  EXPECT_EQ(PrecisionFor(384, 384), Precision::kFloat64);
  EXPECT_EQ(PrecisionFor(384, 1536), Precision::kFloat64);
  EXPECT_EQ(PrecisionFor(1024, 1024), Precision::kFloat32);
  EXPECT_EQ(PrecisionFor(1, 4096), Precision::kFloat32);
}

// The smallest layer that kAuto computes in float32. With nothing fixed most of
// the vertex changes in every step: near-ties that rounding decides differently
// (and every BLAS kernel rounds differently) lead along another path, whose
// loss differs by a few 1e-4 in the first iterations and meets again later.
struct PrecisionCase {
  double alpha;
  double tolerance;
};

class Float32Test : public ::testing::TestWithParam<PrecisionCase> {};

TEST_P(Float32Test, IsCloseEnoughWhereItIsUsed) {
  const RandomLayer layer =
      MakeRandomLayer({.rows = 1024, .cols = 1024, .tokens = 2048, .correlation = 0.5, .seed = 1});
  for (const StepRule rule : {StepRule::kOpenLoop, StepRule::kLineSearch}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const StartingPoint start,
        MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::Unstructured(0.6), {},
                          GetParam().alpha));
    const StepRequest request = {.count = 40, .rule = rule};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto exact, LoadedEngine(EngineKind::kCpuFloat64, start));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats expected, exact->Step(request));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(EngineKind::kCpuFloat32, start));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats actual, engine->Step(request));
    EXPECT_NEAR(actual.relaxed_loss, expected.relaxed_loss,
                GetParam().tolerance * expected.relaxed_loss)
        << NameOf(rule);
  }
}

INSTANTIATE_TEST_SUITE_P(Alpha, Float32Test,
                         ::testing::Values(PrecisionCase{0.9, 1e-4}, PrecisionCase{0, 1e-3}),
                         [](const auto& test) {
                           return test.param.alpha == 0 ? "NothingFixed" : "MostFixed";
                         });

TEST(CpuEngineTest, StationaryIteratesCostNothing) {
  const RandomLayer layer = MakeRandomLayer({.rows = 8, .cols = 16, .seed = 1});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.5), {}, 1));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(EngineKind::kCpuFloat64, start));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine->Step({.count = int64_t{1} << 50}));
  EXPECT_EQ(stats.iteration, int64_t{1} << 50);
  EXPECT_EQ(stats.gap, 0);
  EXPECT_EQ(stats.lower_bound, stats.relaxed_loss);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine->Round());
  EXPECT_EQ(rounded.mask, start.warm);
}

// What is told of the drift is of the last iterations; the solver asks for a comparison else.
TEST(RefreshTest, ScreenedIterationsNeedNone) {
  const auto layer = MakeRandomLayer({.rows = 24, .cols = 70, .seed = 6});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const auto start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.6), {}, 0.9));
  for (const EngineKind kind : {EngineKind::kCpuFloat64, EngineKind::kCpuFloat32}) {
    for (const Screening screening : {Screening::kNever, Screening::kAlways}) {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const auto engine,
          LoadedEngine(kind, start, {.threads = 1, .tuning = {.screening = screening}}));
      SPARSEFW_ASSERT_OK_AND_ASSIGN(StepStats stats, engine->Step({.count = 1300}));
      EXPECT_EQ(stats.drift > 0, screening == Screening::kNever);
      EXPECT_EQ(stats.engine.screening.iterations > 1200, screening == Screening::kAlways);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(stats, engine->Step({.measure_drift = true}));
      EXPECT_GT(stats.drift, 0);
      EXPECT_LT(stats.drift, kind == EngineKind::kCpuFloat64 ? 1e-12 : 1e-5);
    }
  }
}

}  // namespace
}  // namespace sparsefw
