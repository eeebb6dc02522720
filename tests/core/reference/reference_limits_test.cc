// The reference engine ends soon after a limit, in the midst of whatever it does.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "core/src/reference/reference_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StartingPoint;
using ::sparsefw::testing::StatusIs;

// An engine that counts how often it looks at its deadline, which passes after
// `limit` looks.
class CountedEngine {
 public:
  explicit CountedEngine(const StartingPoint& start) {
    SPARSEFW_EXPECT_OK(engine_.Load(start.problem()));
  }

  ReferenceEngine& StartCount(int64_t limit) {
    looks_ = 0;
    limit_ = limit;
    return engine_;
  }
  int64_t looks() const { return looks_; }

 private:
  std::atomic<int64_t> looks_ = 0;
  int64_t limit_ = std::numeric_limits<int64_t>::max();
  ReferenceEngine engine_{{.threads = 1}, [this] { return ++looks_ > limit_; }};
};

struct Method {
  const char* name;
  absl::Status (*call)(Engine& engine, const StartingPoint& start);
};

constexpr int64_t kRows = 30;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

const Method kMethods[] = {
    {"Load",
     [](Engine& engine, const StartingPoint& start) { return engine.Load(start.problem()); }},
    {"Step",
     [](Engine& engine, const StartingPoint&) {
       return engine.Step({.count = 2, .rule = StepRule::kLineSearch}).status();
     }},
    {"Round", [](Engine& engine, const StartingPoint&) { return engine.Round().status(); }},
    {"Loss",
     [](Engine& engine, const StartingPoint& start) { return engine.Loss(start.warm).status(); }},
    {"Reconstruct",
     [](Engine& engine, const StartingPoint& start) {
       return engine.Reconstruct(start.warm, {}).status();
     }},
    {"LossOfWeights",
     [](Engine& engine, const StartingPoint& start) {
       return engine.LossOfWeights(Matrix<float>(start.warm.rows(), start.warm.cols())).status();
     }},
};

class ReferenceLimitsTest : public ::testing::TestWithParam<Pattern> {
 protected:
  void SetUp() override {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        start_, MakeStartingPoint(layer_.weights.view(), layer_.gram.view(), GetParam(), {}, 0));
  }

  const RandomLayer layer_ = MakeRandomLayer({.rows = kRows, .cols = 24, .seed = 5});
  StartingPoint start_;
};

INSTANTIATE_TEST_SUITE_P(Patterns, ReferenceLimitsTest,
                         ::testing::Values(Pattern::Unstructured(0.5), Pattern::PerRow(0.5),
                                           Pattern::KeepOfGroup(2, 4)));

TEST_P(ReferenceLimitsTest, EveryMethodLooksBeforeEveryRowAndEndsAtOnce) {
  for (const Method& method : kMethods) {
    CountedEngine engine(start_);
    SPARSEFW_EXPECT_OK(method.call(engine.StartCount(kNever), start_));
    const int64_t looks = engine.looks();
    EXPECT_GE(looks, kRows) << method.name;
    for (int64_t limit = 0; limit < looks; limit += 1 + looks / 40) {
      SPARSEFW_ASSERT_OK(engine.StartCount(kNever).Load(start_.problem()));
      EXPECT_THAT(method.call(engine.StartCount(limit), start_),
                  StatusIs(absl::StatusCode::kCancelled))
          << method.name;
      // Reconstruct gives the rows that are left their masked weights.
      EXPECT_LE(engine.looks(), limit + 2 + kRows) << method.name;
    }
  }
}

TEST_P(ReferenceLimitsTest, AStoppedStepLeavesTheIterateOfTheLastOne) {
  CountedEngine undisturbed(start_);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats expected,
                                undisturbed.StartCount(kNever).Step({.count = 6}));
  CountedEngine engine(start_);
  SPARSEFW_ASSERT_OK(engine.StartCount(kNever).Step({.count = 3}).status());
  for (const int64_t limit : {0, 7, 50, 95}) {
    EXPECT_THAT(engine.StartCount(limit).Step({.count = 1}),
                StatusIs(absl::StatusCode::kCancelled));
  }
  // Steps that were complete when their evaluation was stopped count.
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats now, engine.StartCount(kNever).Step({.count = 0}));
  ASSERT_GE(now.iteration, 3);
  ASSERT_LE(now.iteration, 6);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats,
                                engine.StartCount(kNever).Step({.count = 6 - now.iteration}));
  EXPECT_EQ(stats.iteration, expected.iteration);
  EXPECT_EQ(stats.relaxed_loss, expected.relaxed_loss);
  EXPECT_EQ(stats.gap, expected.gap);
}

// Refinement ends with the mask so far: in the rows that it prepares with the start.
TEST_P(ReferenceLimitsTest, RefineEndsInEveryRow) {
  CountedEngine engine(start_);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask whole, engine.StartCount(kNever).Refine(
                                                             start_.warm, {.keep_fixed = false}));
  EXPECT_TRUE(whole.converged);
  ASSERT_GT(whole.swaps, 5);
  for (int64_t limit = 0; limit < kRows + 12; ++limit) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const RefinedMask refined,
        engine.StartCount(limit).Refine(start_.warm, {.keep_fixed = false}));
    EXPECT_FALSE(refined.converged);
    EXPECT_EQ(engine.looks(), limit + 1);
    EXPECT_LE(refined.swaps, std::max<int64_t>(0, limit - kRows)) << limit;
    if (limit <= kRows) {
      EXPECT_EQ(refined.mask, start_.warm);
    }
  }
}

// The selection is of a whole matrix, in which no row ends it.
TEST(ReferenceSelectionTest, LooksWhileItSelects) {
  constexpr int64_t kManyRows = 300;
  const RandomLayer layer = MakeRandomLayer({.rows = kManyRows, .cols = 400, .seed = 6});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StartingPoint start,
                                MakeStartingPoint(layer.weights.view(), layer.gram.view(),
                                                  Pattern::Unstructured(0.6), {}, 0));
  CountedEngine engine(start);
  SPARSEFW_ASSERT_OK(engine.StartCount(kNever).Round().status());
  // Two for the indices, one for the mask, one for each row's distance.
  const int64_t others = 2 + 1 + kManyRows;
  EXPECT_GT(engine.looks(), others);
  EXPECT_THAT(engine.StartCount(2).Round(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(engine.looks(), 3);
}

}  // namespace
}  // namespace sparsefw
