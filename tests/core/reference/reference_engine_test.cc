// The reference engine against arithmetic done by hand, and its manners: stop
// signal, gap stop, reload.
#include "core/src/reference/reference_engine.h"

#include <memory>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw {
namespace {

using ::absl::StatusCode;
using ::sparsefw::testing::IsSubset;
using ::sparsefw::testing::LoadedEngine;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::NaiveLoss;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::RowsOf;
using ::sparsefw::testing::StartingPoint;
using ::sparsefw::testing::StatusIs;
using ::testing::ElementsAre;

// W = |2 -2 1.5 1|      G = | 1  .9      |     2 of 4 kept in a row, alpha = 0.
//     |1  2  3  4|          |.9   1      |     The first two inputs nearly agree, so
//                           |        1   |     pruning 2 and -2 together costs 0.8,
//                           |          1 |     pruning 1.5 and 1 costs 3.25.
class HandWorkedTest : public ::testing::TestWithParam<Pattern> {
 protected:
  void SetUp() override {
    const float weights[] = {2, -2, 1.5F, 1, 1, 2, 3, 4};
    std::copy_n(weights, 8, weights_.data());
    for (int64_t i = 0; i < 4; ++i) gram_(i, i) = 1;
    gram_(0, 1) = gram_(1, 0) = 0.9;
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        start_, MakeStartingPoint(weights_.view(), gram_.view(), GetParam(), {}, /*alpha=*/0));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(engine_, LoadedEngine(ReferenceBackend(), start_));
  }

  Matrix<float> weights_{2, 4};
  Matrix<double> gram_{4, 4};
  StartingPoint start_;
  std::unique_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(Rows, HandWorkedTest,
                         ::testing::Values(Pattern::PerRow(0.5), Pattern::KeepOfGroup(2, 4)));

// Row 0: D = (0 0 1.5 1), E = D, S = (0 0 2.25 1), V = (0 0 1 1), L = 3.25, g = 2*3.25
// Row 1: D = (1 2 0 0), E = (2.8 2.9 0 0), S = (2.8 5.8 0 0), V = (1 1 0 0), L = 8.6, g = 17.2
TEST_P(HandWorkedTest, StartsAtTheWarmStart) {
  EXPECT_THAT(RowsOf(start_.warm), ElementsAre("1100", "0011"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine_->Step({.count = 0}));
  EXPECT_EQ(stats.iteration, 0);
  EXPECT_EQ(stats.step_size, 0);
  EXPECT_NEAR(stats.relaxed_loss, 11.85, 1e-12);
  EXPECT_NEAR(stats.gap, 23.7, 1e-12);
  EXPECT_NEAR(stats.lower_bound, -11.85, 1e-12);
  EXPECT_FALSE(stats.reached_gap);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine_->Round());
  EXPECT_EQ(rounded.mask, start_.warm);
  EXPECT_EQ(rounded.threshold_residual, 0);
}

// eta_0 = 1: M = V_0. Row 0: D = (2 -2 0 0), E = (.2 -.2 0 0), L = .8, g = 1.6.
// Row 1: D = (0 0 3 4), L = 25, g = 50.
TEST_P(HandWorkedTest, FirstOpenLoopStepDiscardsTheWarmStart) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine_->Step({.count = 1}));
  EXPECT_EQ(stats.iteration, 1);
  EXPECT_EQ(stats.step_size, 1);
  EXPECT_NEAR(stats.relaxed_loss, 25.8, 1e-12);
  EXPECT_NEAR(stats.gap, 51.6, 1e-12);
  EXPECT_NEAR(stats.lower_bound, -11.85, 1e-12) << "the best bound is that of the start";
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine_->Round());
  EXPECT_THAT(RowsOf(rounded.mask), ElementsAre("0011", "1100"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const double loss, engine_->Loss(rounded.mask));
  EXPECT_NEAR(loss, 25.8, 1e-12);
}

// eta_1 = 2/3.
// Row 0: M = (2 2 1 1)/3, D = (2 -2 3 2)/3, E = (1/15 -1/15 1 2/3), L = 23/15,
//        S = (2/15 2/15 3/2 2/3), V = (0 0 1 1), g = 2*(-8/45 + 13/9) = 38/15
// Row 1: M = (1 1 2 2)/3, D = (2 4 3 4)/3, E = (28/15 29/15 1 4/3), L = 6.6,
//        S = (28/15 58/15 3 16/3), V = (0 1 0 1), g = 2*26/15 = 52/15
TEST_P(HandWorkedTest, SecondOpenLoopStepMixes) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine_->Step({.count = 2}));
  EXPECT_NEAR(stats.step_size, 2.0 / 3, 1e-15);
  EXPECT_NEAR(stats.relaxed_loss, 23.0 / 15 + 6.6, 1e-12);
  EXPECT_NEAR(stats.gap, 6, 1e-12);
  EXPECT_NEAR(stats.lower_bound, 23.0 / 15 + 0.6, 1e-12);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine_->Round());
  EXPECT_THAT(RowsOf(rounded.mask), ElementsAre("1100", "0011"));
  // Four entries are 1/3 away from 1 and four from 0; k = 4.
  EXPECT_NEAR(rounded.threshold_residual, 2.0 / 3, 1e-12);
}

// q = 4.05 + 33.6, eta = 23.7 / (2q), L = 11.85 - g^2 / (4q)
TEST_P(HandWorkedTest, LineSearchStopsAtTheMinimumOfTheLine) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats,
                                engine_->Step({.count = 1, .rule = StepRule::kLineSearch}));
  EXPECT_NEAR(stats.step_size, 23.7 / 75.3, 1e-12);
  EXPECT_NEAR(stats.relaxed_loss, 11.85 - 23.7 * 23.7 / 150.6, 1e-12);
}

TEST_P(HandWorkedTest, LossesOfPruningAllAndNothing) {
  // (4 + 4 - 7.2 + 2.25 + 1) + (1 + 4 + 3.6 + 9 + 16)
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const double all, engine_->Loss(Mask(2, 4)));
  EXPECT_NEAR(all, 4.05 + 33.6, 1e-12);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const double none,
                                engine_->Loss(testing::MaskFromRows({"1111", "1111"})));
  EXPECT_EQ(none, 0);
}

class ReferenceEngineTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(Pattern::Unstructured(0.6), 0.5); }
  void Start(const Pattern& pattern, double alpha, const EngineOptions& options = {}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        start_, MakeStartingPoint(layer_.weights.view(), layer_.gram.view(), pattern, {}, alpha));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(engine_, LoadedEngine(ReferenceBackend(), start_, options));
  }

  RandomLayer layer_ = MakeRandomLayer({.rows = 12, .cols = 24, .seed = 3});
  StartingPoint start_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(ReferenceEngineTest, OneCallOfTenStepsIsTenCallsOfOne) {
  for (const StepRule rule : {StepRule::kOpenLoop, StepRule::kLineSearch}) {
    Start(Pattern::Unstructured(0.6), 0.5);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats at_once,
                                  engine_->Step({.count = 10, .rule = rule}));
    SPARSEFW_ASSERT_OK(engine_->Load(start_.problem()));
    StepStats one_by_one;
    for (int i = 0; i < 10; ++i) {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(one_by_one, engine_->Step({.count = 1, .rule = rule}));
    }
    EXPECT_EQ(one_by_one.iteration, 10);
    EXPECT_EQ(at_once.relaxed_loss, one_by_one.relaxed_loss);
    EXPECT_EQ(at_once.gap, one_by_one.gap);
    EXPECT_EQ(at_once.lower_bound, one_by_one.lower_bound);
  }
}

TEST_F(ReferenceEngineTest, SameOnAnyNumberOfThreadsAndFromAnyThread) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats many, engine_->Step({.count = 20}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine_->Round());
  Start(Pattern::Unstructured(0.6), 0.5, {.threads = 1});
  std::thread other([&] {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats one, engine_->Step({.count = 20}));
    EXPECT_EQ(one.relaxed_loss, many.relaxed_loss);
  });
  other.join();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask again, engine_->Round());
  EXPECT_EQ(again.mask, rounded.mask);
}

TEST_F(ReferenceEngineTest, StopsAtTheGap) {
  const StepRequest request{.count = 100000, .rule = StepRule::kLineSearch, .rel_gap = 0.05};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine_->Step(request));
  EXPECT_TRUE(stats.reached_gap);
  EXPECT_GT(stats.iteration, 0);
  EXPECT_LT(stats.iteration, 100000);
  EXPECT_LE(stats.gap, 0.05 * stats.relaxed_loss);
  // It stays where it is when asked again, and goes on with a smaller gap.
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats again, engine_->Step(request));
  EXPECT_EQ(again.iteration, stats.iteration);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats further, engine_->Step({.count = 1}));
  EXPECT_EQ(further.iteration, stats.iteration + 1);
  EXPECT_FALSE(further.reached_gap);
}

TEST_F(ReferenceEngineTest, EverythingFixedLeavesNothingToDo) {
  for (const Pattern& pattern :
       {Pattern::Unstructured(0.6), Pattern::PerRow(0.6), Pattern::KeepOfGroup(2, 4)}) {
    Start(pattern, 1);
    EXPECT_EQ(start_.fixed, start_.warm);
    for (const StepRule rule : {StepRule::kOpenLoop, StepRule::kLineSearch}) {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats,
                                    engine_->Step({.count = 3, .rule = rule}));
      EXPECT_EQ(stats.gap, 0);
      EXPECT_EQ(stats.lower_bound, stats.relaxed_loss);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine_->Round());
      EXPECT_EQ(rounded.mask, start_.warm);
    }
  }
}

TEST_F(ReferenceEngineTest, PruningEverythingIsLegal) {
  Start(Pattern::PerRow(1), 0.9);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine_->Step({.count = 2}));
  EXPECT_NEAR(stats.relaxed_loss,
              NaiveLoss(layer_.weights.view(), layer_.gram.view(), Mask(12, 24)),
              1e-9 * stats.relaxed_loss);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine_->Round());
  EXPECT_EQ(rounded.mask.CountKept(), 0);
  EXPECT_EQ(rounded.threshold_residual, 0);
}

TEST_F(ReferenceEngineTest, UsesTheSymmetricPartOfGram) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats expected, engine_->Step({.count = 5}));
  for (int64_t i = 0; i < 24; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      layer_.gram(i, j) += 0.01;
      layer_.gram(j, i) -= 0.01;
    }
  }
  SPARSEFW_ASSERT_OK(engine_->Load(start_.problem()));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine_->Step({.count = 5}));
  EXPECT_NEAR(stats.relaxed_loss, expected.relaxed_loss, 1e-10 * expected.relaxed_loss);
}

TEST_F(ReferenceEngineTest, AfterAStopNothingWorks) {
  StopSignal stop;
  Start(Pattern::PerRow(0.6), 0.5, {.stop = &stop});
  SPARSEFW_ASSERT_OK(engine_->Step({.count = 3}));
  stop.Request();
  EXPECT_THAT(engine_->Step({.count = 1}), StatusIs(StatusCode::kCancelled));
  EXPECT_THAT(engine_->Loss(start_.warm), StatusIs(StatusCode::kCancelled));
  EXPECT_THAT(engine_->Round(), StatusIs(StatusCode::kCancelled));
  EXPECT_THAT(engine_->Load(start_.problem()), StatusIs(StatusCode::kCancelled));
}

TEST(ReferenceBackendTest, SaysWhatItIs) {
  EXPECT_EQ(ReferenceBackend().name(), "reference");
  const DeviceDescription device = ReferenceBackend().Describe();
  EXPECT_EQ(device.name, "reference");
  EXPECT_THAT(device.description, ::testing::HasSubstr("float64"));
  EXPECT_GT(device.memory_bytes, 0);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const int64_t free_bytes, ReferenceBackend().FreeMemoryBytes());
  EXPECT_GT(free_bytes, 0);
  EXPECT_LE(free_bytes, device.memory_bytes);
  // Beyond 4 Gi weights, without a wrap.
  EXPECT_GT(ReferenceBackend().EstimateHostBytes(int64_t{1} << 17, int64_t{1} << 16, {}),
            int64_t{40} << 33);
}

}  // namespace
}  // namespace sparsefw
