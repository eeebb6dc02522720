// The part of Frank-Wolfe that CPU and CUDA share: scalars, the lazy mask,
// the window of scores.
#include "core/src/frank_wolfe/recurrence.h"

#include <cstdint>
#include <limits>

#include "core/src/frank_wolfe/incremental_frank_wolfe.h"
#include "core/src/frank_wolfe/lazy_mask.h"
#include "core/src/frank_wolfe/score_window.h"
#include "gtest/gtest.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::Random;

TEST(RecurrenceTest, OpenLoopStepsAreThoseOfThePaper) {
  for (const int64_t t : {0, 1, 2, 500}) {
    const Recurrence at = {.iteration = t};
    EXPECT_EQ(ChooseStep<double>(at, false), 2.0 / static_cast<double>(t + 2));
    EXPECT_EQ(ChooseStep<float>(at, false),
              static_cast<double>(static_cast<float>(2.0 / static_cast<double>(t + 2))));
  }
}

// L along the segment is L - eta g + eta^2 q.
TEST(RecurrenceTest, LineSearchTakesTheMinimumOfTheSegment) {
  Recurrence at = {.relaxed_loss = 10, .vertex_loss = 9};
  EvaluateVertex(at, 7);
  EXPECT_EQ(at.gap, 6);
  const double q = 9 - 2 * 7 + 10;
  EXPECT_EQ(ChooseStep<double>(at, true), 6 / (2 * q));
  at.vertex_loss = 4.5;  // q = 0.5: the minimum is beyond the vertex
  EXPECT_EQ(ChooseStep<double>(at, true), 1);
  at.vertex_loss = 3;  // q < 0: by rounding, or G is not PSD
  EXPECT_EQ(ChooseStep<double>(at, true), 1);
  at.gap = 0;
  EXPECT_EQ(ChooseStep<double>(at, true), 0);
}

TEST(RecurrenceTest, TheLossMovesAlongTheSegment) {
  Recurrence at = {.relaxed_loss = 10, .vertex_loss = 9, .vertex_inner = 7};
  TakeStep(at, 0.25);
  EXPECT_DOUBLE_EQ(at.relaxed_loss, 10 - 0.25 * 6 + 0.0625 * 5);
  EXPECT_EQ(at.iteration, 1);
  EXPECT_EQ(at.step_size, 0.25);
}

TEST(RecurrenceTest, KeepsTheBestBound) {
  Recurrence at = {.relaxed_loss = 10};
  EvaluateVertex(at, 6);  // gap 8
  EXPECT_EQ(at.lower_bound, 2);
  EvaluateVertex(at, 5);  // gap 10
  EXPECT_EQ(at.lower_bound, 2);
  EXPECT_FALSE(ReachedGap(at, 0.5));
  EvaluateVertex(at, 8);  // gap 4
  EXPECT_EQ(at.lower_bound, 6);
  EXPECT_TRUE(ReachedGap(at, 0.5));
  EXPECT_FALSE(ReachedGap(at, 0));
}

TEST(RecurrenceTest, AGapThatIsRoundingIsNone) {
  for (const double loss : {1e-30, 1.0, 1e30}) {
    for (const double off : {-1e-15, 1e-15}) {
      Recurrence at = {.relaxed_loss = loss, .vertex_loss = loss};
      EvaluateVertex(at, loss * (1 + off));
      EXPECT_EQ(at.gap, 0);
      EXPECT_EQ(at.lower_bound, off > 0 ? loss : loss - 2 * (loss - loss * (1 + off)));
      EXPECT_EQ(ChooseStep<double>(at, true), 0);
    }
    Recurrence at = {.relaxed_loss = loss};
    EvaluateVertex(at, loss * (1 - 1e-12));
    EXPECT_GT(at.gap, 0);
  }
  // G need not be positive semi-definite.
  Recurrence at = {.relaxed_loss = -1};
  EvaluateVertex(at, -1 + 1e-15);
  EXPECT_EQ(at.gap, 0);
}

TEST(RecurrenceTest, EveryPeriodEndsWithARefreshAndTheNextBeginsWithOne) {
  EXPECT_FALSE(RefreshesVertexProduct(0));
  int64_t products = 0;
  int64_t vertex_products = 0;
  for (int64_t t = 0; t < 3 * kRefreshPeriod; ++t) {
    products += RefreshesProduct(t) ? 1 : 0;
    vertex_products += RefreshesVertexProduct(t) ? 1 : 0;
    EXPECT_TRUE(RefreshesProduct(t + StepsBeforeRefresh(t))) << t;
    EXPECT_LT(StepsBeforeRefresh(t), kRefreshPeriod);
    if (RefreshesProduct(t)) {
      EXPECT_TRUE(RefreshesVertexProduct(t + 1));
    }
  }
  EXPECT_EQ(products, 3);
  EXPECT_EQ(vertex_products, 2);
}

TEST(LazyMaskTest, IsTheMask) {
  Random random(5);
  LazyScale scale;
  bool in_vertex = random.Uniform() < 0.5;
  double mask = in_vertex ? 1 : 0;
  double x = mask;
  int folds = 0;
  for (int t = 0; t < 3000; ++t) {
    if (random.Uniform() < 0.3) {
      in_vertex = !in_vertex;
      x = ToggledEntry(x, in_vertex, scale);
    }
    // Steps of 1 forget everything, large ones make c small soon.
    const double eta = t % 700 == 20 ? 1 : random.Uniform() * 0.9;
    LazyScale old;
    const Rewrite rewrite = AdvanceScale(scale, eta, old);
    folds += rewrite == Rewrite::kFold ? 1 : 0;
    EXPECT_EQ(rewrite == Rewrite::kForget, eta == 1);
    x = RewrittenEntry(rewrite, old, x, in_vertex);
    mask += eta * ((in_vertex ? 1.0 : 0.0) - mask);
    ASSERT_NEAR(LazyValue(x, in_vertex, scale), mask, 1e-12) << t;
    ASSERT_GE(scale.decay, kLeastDecay);
  }
  EXPECT_GT(folds, 10);
}

template <typename Real>
class ScoreWindowTest : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ScoreWindowTest, Reals);

TYPED_TEST(ScoreWindowTest, FollowsTheThresholdAndWidensWhenItMisses) {
  const auto at = [](double value) { return static_cast<TypeParam>(value); };
  ScoreWindow<TypeParam> window;
  EXPECT_EQ(window.low(), std::numeric_limits<TypeParam>::max());
  window.Move(2, false);
  EXPECT_EQ(window.low(), 1);
  EXPECT_EQ(window.high(), 3);
  for (int i = 0; i < 40; ++i) window.Move(2, true);
  EXPECT_EQ(window.spread, at(1.0 / 1024)) << "a threshold that stays";
  window.Move(at(2.1), false);
  EXPECT_NEAR(window.spread, 0.3, 1e-6) << "six times the move that was missed";
  window.Move(at(2.1 * 1.05), true);
  EXPECT_NEAR(window.spread, 0.7 * 0.3, 1e-6) << "less than three times the move is wide enough";
  window.Move(0, true);
  EXPECT_EQ(window.spread, at(0.5)) << "no wider";
  EXPECT_EQ(window.low(), 0);
  EXPECT_TRUE(window.known());
}

TEST(PrecisionTest, Float64ForSmallLayersUnlessLessWasAskedFor) {
  EXPECT_EQ(PrecisionFor(384, 1536), Precision::kFloat64);
  EXPECT_EQ(PrecisionFor(1024, 1024), Precision::kFloat32);
  EXPECT_EQ(PrecisionFor(1, 4096), Precision::kFloat32);
  EXPECT_EQ(PrecisionFor(384, 384, ProductPrecision::kTf32), Precision::kFloat32);
}

}  // namespace
}  // namespace sparsefw
