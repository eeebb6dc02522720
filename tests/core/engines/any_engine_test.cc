// What every engine does whatever it computes: stops, gaps, losses, roundings.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "gtest/gtest.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::EngineKind;
using ::sparsefw::testing::kAllEngines;
using ::sparsefw::testing::LoadedEngine;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::NaiveLoss;
using ::sparsefw::testing::NameOf;
using ::sparsefw::testing::Random;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StartingPoint;
using ::sparsefw::testing::StatusIs;
using ::sparsefw::testing::TypedMatrix;

class AnyEngineTest : public ::testing::TestWithParam<EngineKind> {
 protected:
  void SetUp() override {
    SPARSEFW_NEED_DEVICE(GetParam());
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        start_, MakeStartingPoint(weights_.view(), gram_.view(), Pattern::Unstructured(0.6), {},
                                  /*alpha=*/0.5));
  }

  const RandomLayer layer_ =
      MakeRandomLayer({.rows = 40, .cols = 64, .correlation = 0.5, .large_columns = 2, .seed = 3});
  const TypedMatrix weights_{layer_.weights.view(), DType::kF32, /*padding=*/5};
  const TypedMatrix gram_{layer_.gram.view(), DType::kF64, /*padding=*/3};
  StartingPoint start_;
};

INSTANTIATE_TEST_SUITE_P(All, AnyEngineTest, ::testing::ValuesIn(kAllEngines),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(AnyEngineTest, LossIsThatOfTheDefinition) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(GetParam(), start_));
  Random random(8);
  Mask mask(40, 64);
  for (int64_t row = 0; row < 40; ++row) {
    for (int64_t col = 0; col < 64; ++col) mask.Set(row, col, random.Uniform() < 0.4);
  }
  for (const Mask& candidate : {mask, start_.warm, Mask(40, 64)}) {
    const double expected = NaiveLoss(start_.weights, start_.gram, candidate);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double loss, engine->Loss(candidate));
    EXPECT_NEAR(loss, expected, 1e-12 * expected);
  }
}

TEST_P(AnyEngineTest, StopSignalEndsEveryMethod) {
  StopSignal stop;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine,
                                LoadedEngine(GetParam(), start_, {.threads = 2, .stop = &stop}));
  SPARSEFW_ASSERT_OK(engine->Step({.count = 3}));
  stop.Request();
  EXPECT_THAT(engine->Step({.count = 1}), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(engine->Loss(start_.warm), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(engine->Round(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_P(AnyEngineTest, StopSignalEndsLoading) {
  StopSignal stop;
  stop.Request();
  const auto engine = LoadedEngine(GetParam(), start_, {.threads = 2, .stop = &stop});
  EXPECT_THAT(engine, StatusIs(absl::StatusCode::kCancelled));
}

TEST_P(AnyEngineTest, StopSignalFromAnotherThreadEndsARunningStep) {
  StopSignal stop;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine,
                                LoadedEngine(GetParam(), start_, {.threads = 2, .stop = &stop}));
  SPARSEFW_ASSERT_OK(engine->Step({.count = 1}));
  absl::Status status;
  std::atomic<bool> begun = false;
  std::thread worker([&] {
    begun = true;
    status = engine->Step({.count = int64_t{1} << 40, .rule = StepRule::kOpenLoop}).status();
  });
  while (!begun) std::this_thread::yield();
  // Nothing else uses the processor: the step has done some work when it is stopped.
  const std::clock_t since = std::clock();
  while (std::clock() - since < CLOCKS_PER_SEC / 50) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  stop.Request();
  worker.join();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled));
}

TEST_P(AnyEngineTest, StopsAtTheGap) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(GetParam(), start_));
  const StepRequest request = {.count = 100'000, .rule = StepRule::kLineSearch, .rel_gap = 0.05};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine->Step(request));
  EXPECT_TRUE(stats.reached_gap);
  EXPECT_LE(stats.gap, 0.05 * stats.relaxed_loss);
  EXPECT_LT(stats.iteration, 100'000);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats again, engine->Step(request));
  EXPECT_EQ(again.iteration, stats.iteration);
  EXPECT_TRUE(again.reached_gap);
}

TEST_P(AnyEngineTest, RoundingBeforeAnyStepGivesTheWarmStart) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(GetParam(), start_));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine->Round());
  EXPECT_EQ(rounded.mask, start_.warm);
  EXPECT_EQ(rounded.threshold_residual, 0);
}

}  // namespace
}  // namespace sparsefw
