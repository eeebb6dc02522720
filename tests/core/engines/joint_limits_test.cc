// The joint search where something is missing: rank, weights, time; and with any number of threads.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "sparsefw/stop_signal.h"
#include "tests/core/engines/joint_search.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::EngineKind;
using ::sparsefw::testing::ExpectFits;
using ::sparsefw::testing::LossOf;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::NameOf;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::Rounding;
using ::sparsefw::testing::Search;
using ::sparsefw::testing::Searched;
using ::sparsefw::testing::StartingPoint;

class JointLimitsTest : public ::testing::TestWithParam<EngineKind> {};

INSTANTIATE_TEST_SUITE_P(Engines, JointLimitsTest, ::testing::ValuesIn(testing::kJointEngines),
                         [](const auto& test) { return NameOf(test.param); });
// Dead inputs, fewer tokens than inputs, nothing at all.
TEST_P(JointLimitsTest, DegenerateGrams) {
  SPARSEFW_NEED_DEVICE(GetParam());
  for (const bool dead_only : {true, false}) {
    for (const double damping : {0.0, 0.001}) {
      SCOPED_TRACE(::testing::Message() << dead_only << " " << damping);
      const RandomLayer layer = MakeRandomLayer(
          {.rows = 12, .cols = 32, .tokens = dead_only ? 0 : 14, .dead_columns = 4, .seed = 5});
      for (const Pattern& pattern :
           {Pattern::PerRow(0.6), Pattern::Unstructured(0.6), Pattern::KeepOfGroup(2, 4)}) {
        SPARSEFW_ASSERT_OK_AND_ASSIGN(
            const StartingPoint start,
            MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, 0.25));
        SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched searched,
                                      Search(GetParam(), start, {.options = {.damping = damping}}));
        ExpectFits(start, searched.result);
        // Nearly as many weights stay as there are tokens: the loss is next to nothing, and what
        // the products round of the whole layer is seen in it.
        const double all = LossOf(start, Matrix<double>(12, 32));
        EXPECT_LE(searched.result.loss, searched.start_loss + Rounding(GetParam()) * all);
        for (const float weight : searched.result.weights.span()) {
          EXPECT_TRUE(std::isfinite(weight));
        }
      }
    }
  }
}

TEST_P(JointLimitsTest, ZeroGramAndZeroWeights) {
  SPARSEFW_NEED_DEVICE(GetParam());
  for (const bool zero_gram : {true, false}) {
    RandomLayer layer = MakeRandomLayer({.rows = 3, .cols = 16, .seed = 6});
    if (zero_gram) {
      std::fill_n(layer.gram.data(), layer.gram.size(), 0.0);
    } else {
      std::fill_n(layer.weights.data(), layer.weights.size(), 0.0F);
    }
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const StartingPoint start,
        MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.5), {}, 0));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched searched, Search(GetParam(), start));
    EXPECT_EQ(searched.result.mask, start.warm);
    EXPECT_EQ(searched.result.loss, 0);
    EXPECT_EQ(searched.result.exchanges, 0);
  }
}
TEST_P(JointLimitsTest, SameBitsForAnyNumberOfThreads) {
  SPARSEFW_NEED_DEVICE(GetParam());
  const RandomLayer layer = MakeRandomLayer({.rows = 40, .cols = 64, .seed = 8});
  for (const Pattern& pattern : {Pattern::PerRow(0.6), Pattern::Unstructured(0.6)}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const StartingPoint start,
        MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, 0.25));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched once,
                                  Search(GetParam(), start, {.options = {}, .threads = 1}));
    EXPECT_GT(once.result.exchanges, 10);
    for (const int threads : {2, 4}) {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched again,
                                    Search(GetParam(), start, {.options = {}, .threads = threads}));
      EXPECT_EQ(again.result.mask, once.result.mask);
      EXPECT_EQ(again.result.loss, once.result.loss);
      EXPECT_TRUE(std::equal(again.result.weights.span().begin(), again.result.weights.span().end(),
                             once.result.weights.span().begin()));
    }
  }
}

// The more exchanges there is time for, the less is lost; and at every end mask and weights
// fit each other.
TEST_P(JointLimitsTest, OutOfTimeReturnsTheBestSoFar) {
  SPARSEFW_NEED_DEVICE(GetParam());
  const RandomLayer layer = MakeRandomLayer({.rows = 6, .cols = 48, .seed = 9});
  for (const Pattern& pattern :
       {Pattern::PerRow(0.6), Pattern::Unstructured(0.6), Pattern::KeepOfGroup(2, 4)}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const StartingPoint start,
        MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, 0));
    double last = std::numeric_limits<double>::infinity();
    int ended_early = 0;
    // A device looks once for all rows of a batch.
    const int step = testing::IsCuda(GetParam()) ? 1 : 3;
    for (int allowed = 0; allowed < 20 * step; allowed += step) {
      int looks = 0;
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const Searched searched,
          Search(GetParam(), start,
                 {.options = {}, .out_of_time = [&] { return ++looks > allowed; }, .threads = 1}));
      ExpectFits(start, searched.result);
      EXPECT_EQ(searched.result.converged, looks <= allowed);
      ended_early += searched.result.converged ? 0 : 1;
      EXPECT_LE(searched.result.loss, searched.start_loss * (1 + Rounding(GetParam())));
      EXPECT_LE(searched.result.loss, last * (1 + 1e-6));
      EXPECT_NEAR(searched.result.loss,
                  LossOf(start, testing::ToDouble(searched.result.weights.view())),
                  Rounding(GetParam()) * searched.result.loss);
      last = searched.result.loss;
    }
    EXPECT_GE(ended_early, 3);
  }
}

// What was reserved for solving and losses is used for them.
TEST_P(JointLimitsTest, TimeThatRunsOutAfterTheSearchCutsNothing) {
  SPARSEFW_NEED_DEVICE(GetParam());
  const RandomLayer layer = MakeRandomLayer({.rows = 6, .cols = 48, .seed = 9});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.6), {}, 0));
  for (const bool enough : {true, false}) {
    std::atomic<bool> solving = false;
    const auto asked = [&] {
      solving = true;
      return !enough;
    };
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched searched,
                                  Search(GetParam(), start,
                                         {.options = {},
                                          .out_of_time = [&] { return solving.load(); },
                                          .threads = 1,
                                          .solving_out_of_time = asked}));
    EXPECT_TRUE(solving);
    EXPECT_EQ(searched.result.converged, enough);
  }
}

TEST_P(JointLimitsTest, AStopReturnsTheStartOrBetter) {
  SPARSEFW_NEED_DEVICE(GetParam());
  const RandomLayer layer = MakeRandomLayer({.rows = 30, .cols = 64, .seed = 10});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.6), {}, 0));
  StopSignal stop;
  int looks = 0;
  const int last = testing::IsCuda(GetParam()) ? 3 : 20;
  const auto searched = Search(GetParam(), start,
                               {.options = {},
                                .out_of_time =
                                    [&] {
                                      if (++looks == last) stop.Request();
                                      return false;
                                    },
                                .threads = 1,
                                .stop = &stop});
  SPARSEFW_ASSERT_OK(searched.status());
  ExpectFits(start, searched->result);
  EXPECT_FALSE(searched->result.converged);
  const double loss = LossOf(start, testing::ToDouble(searched->result.weights.view()));
  EXPECT_LE(loss, searched->start_loss * (1 + 1e-9));
  if (searched->result.exchanges > 0) {
    EXPECT_GE(searched->result.loss, loss * (1 - 1e-3));
  }
}

// Before anything was searched there is no loss that a caller could take for a better one.
TEST_P(JointLimitsTest, AStopBeforeTheFirstRowHasNoLoss) {
  SPARSEFW_NEED_DEVICE(GetParam());
  const RandomLayer layer = MakeRandomLayer({.rows = 30, .cols = 64, .seed = 10});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.6), {}, 0));
  StopSignal stop;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine,
                                testing::LoadedEngine(GetParam(), start, {.stop = &stop}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> weights, engine->Reconstruct(start.warm, {}));
  stop.Request();
  const absl::StatusOr<JointResult> found =
      engine->SearchJointly(start.warm, {.fixed = &start.fixed, .weights = &weights});
  if (!found.ok()) {
    EXPECT_EQ(found.status().code(), absl::StatusCode::kCancelled);
    return;
  }
  EXPECT_EQ(found->exchanges, 0);
  EXPECT_EQ(found->loss, std::numeric_limits<double>::infinity());
  EXPECT_EQ(found->mask, start.warm);
}

}  // namespace
}  // namespace sparsefw
