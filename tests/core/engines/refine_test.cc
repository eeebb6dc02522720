// Swap refinement of every engine: 1-swap optimal by trying every exchange,
// legal, never worse, the same for any number of threads.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "core/src/frank_wolfe/swap_tolerance.h"
#include "gmock/gmock.h"
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
using ::sparsefw::testing::IsFloat32;
using ::sparsefw::testing::IsSubset;
using ::sparsefw::testing::kAllEngines;
using ::sparsefw::testing::LoadedEngine;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::MaskFromRows;
using ::sparsefw::testing::NaiveLoss;
using ::sparsefw::testing::NameOf;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::RowsOf;
using ::sparsefw::testing::StartingPoint;
using ::testing::ElementsAre;

const std::vector<Pattern>& Patterns() {
  static const std::vector<Pattern> patterns = {Pattern::Unstructured(0.6), Pattern::PerRow(0.6),
                                                Pattern::KeepOfGroup(2, 4),
                                                Pattern::KeepOfGroup(3, 8)};
  return patterns;
}

absl::StatusOr<RefinedMask> Refine(EngineKind kind, const StartingPoint& start,
                                   const RefineRequest& request = {},
                                   const EngineOptions& options = {.threads = 2}) {
  SPARSEFW_ASSIGN_OR_RETURN(const auto engine, LoadedEngine(kind, start, options));
  return engine->Refine(start.warm, request);
}

class RefineTest : public ::testing::TestWithParam<EngineKind> {
 protected:
  void SetUp() override { SPARSEFW_NEED_DEVICE(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Engines, RefineTest, ::testing::ValuesIn(kAllEngines),
                         [](const auto& test) { return NameOf(test.param); });

// W = |2 -2 1.5 1|      G = | 1  .9      |     Two of four kept.
//     |1  2  3  4|          |.9   1      |
//                           |        1   |     Row 0 from 1100: D = (0 0 1.5 1) costs 3.25. Every
//                           |          1 |     single exchange leaves 2 or -2 pruned alone, 4 and
// more; only both at once, D = (2 -2 0 0), would cost less, .8. Row 1 from 0011 costs 8.6, D =
// (1 0 3 0) costs 10 and the others more. Both rows are 1-swap optimal.
//
// Row 0 from 1010: D = (0 -2 0 1) costs 5. 2 out for 1 in, D = (2 -2 0 0), costs .8, less than
// every other exchange. Row 1 from 1100: D = (0 0 3 4) costs 25; the best exchange, 1 out for 4
// in, leaves 10, and then 2 out for 3 in 8.6.
TEST_P(RefineTest, SwapsDoNotLeaveALocalOptimum) {
  Matrix<float> weights(2, 4);
  std::copy_n(std::vector<float>{2, -2, 1.5F, 1, 1, 2, 3, 4}.data(), 8, weights.data());
  Matrix<double> gram(4, 4);
  for (int64_t i = 0; i < 4; ++i) gram(i, i) = 1;
  gram(0, 1) = gram(1, 0) = 0.9;
  for (const Pattern& pattern : {Pattern::PerRow(0.5), Pattern::KeepOfGroup(2, 4)}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(StartingPoint start,
                                  MakeStartingPoint(weights.view(), gram.view(), pattern, {}, 0));
    ASSERT_THAT(RowsOf(start.warm), ElementsAre("1100", "0011"));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask stays, Refine(GetParam(), start));
    EXPECT_EQ(stays.swaps, 0);
    EXPECT_EQ(stays.loss_change, 0);
    EXPECT_TRUE(stays.converged);
    EXPECT_EQ(stays.mask, start.warm);

    start.warm = MaskFromRows({"1010", "1100"});
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask moved, Refine(GetParam(), start));
    EXPECT_THAT(RowsOf(moved.mask), ElementsAre("0011", "0011"));
    EXPECT_EQ(moved.swaps, 3);
    // 0.9 is not a float.
    const double rounding = IsFloat32(GetParam()) ? 1e-6 : 1e-12;
    EXPECT_NEAR(moved.loss_change, (0.8 - 5) + (8.6 - 25), rounding);
    EXPECT_TRUE(moved.converged);
  }
}

// W = |1 2|  G = I, two of four kept: |1 2| of row 0 costs 25, |3 4| costs 5.
//     |3 4|
TEST_P(RefineTest, SwapsBetweenRowsOnlyWhereTheMatrixIsOneGroup) {
  Matrix<float> weights(2, 2);
  std::copy_n(std::vector<float>{1, 2, 3, 4}.data(), 4, weights.data());
  Matrix<double> gram(2, 2);
  gram(0, 0) = gram(1, 1) = 1;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      StartingPoint start,
      MakeStartingPoint(weights.view(), gram.view(), Pattern::Unstructured(0.5), {}, 0));
  start.warm = MaskFromRows({"11", "00"});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask moved, Refine(GetParam(), start));
  EXPECT_THAT(RowsOf(moved.mask), ElementsAre("00", "11"));
  EXPECT_EQ(moved.swaps, 2);
  EXPECT_NEAR(moved.loss_change, -20, 1e-12);

  start.fixed = MaskFromRows({"10", "00"});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask locked, Refine(GetParam(), start));
  EXPECT_THAT(RowsOf(locked.mask), ElementsAre("10", "01"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask unlocked,
                                Refine(GetParam(), start, {.keep_fixed = false}));
  EXPECT_EQ(unlocked.mask, moved.mask);
}

// The exchange that lowers the loss by most beyond the tolerance, of all that
// the pattern allows, by recomputing the loss of every mask. At most 0 means
// that there is none.
double BestExcess(const StartingPoint& start, const Mask& mask, bool keep_fixed,
                  const std::vector<double>& tolerance) {
  const Groups groups = GroupsOf(start.pattern, mask.rows(), mask.cols());
  const auto group_of = [&](int64_t row, int64_t col) {
    return groups.whole_matrix ? 0 : row * groups.groups_per_row + col / groups.group_cols;
  };
  const double loss = NaiveLoss(start.weights, start.gram, mask);
  double best = -1;
  const int64_t cols = mask.cols();
  for (int64_t p = 0; p < mask.rows() * cols; ++p) {
    if (!mask.Get(p / cols, p % cols)) continue;
    if (keep_fixed && start.fixed.Get(p / cols, p % cols)) continue;
    for (int64_t q = 0; q < mask.rows() * cols; ++q) {
      if (mask.Get(q / cols, q % cols)) continue;
      if (group_of(p / cols, p % cols) != group_of(q / cols, q % cols)) continue;
      Mask other = mask;
      other.Set(p / cols, p % cols, false);
      other.Set(q / cols, q % cols, true);
      const double allowed = tolerance[static_cast<size_t>(p / cols)] +
                             (p / cols == q / cols ? 0 : tolerance[static_cast<size_t>(q / cols)]);
      best = std::max(best, (loss - NaiveLoss(start.weights, start.gram, other) - allowed) / loss);
    }
  }
  return best;
}

std::vector<double> Tolerances(const StartingPoint& start) {
  std::vector<double> result;
  for (int64_t row = 0; row < start.warm.rows(); ++row) {
    Mask rest(1, start.warm.cols());
    std::copy_n(start.warm.row(row), start.warm.row_bytes(), rest.row(0));
    const ConstMatrixView weights = start.weights.Rows(row, 1);
    double squares = 0;
    const Matrix<double> w = testing::ToDouble(weights);
    const Matrix<double> g = testing::ToDouble(start.gram);
    for (int64_t col = 0; col < w.cols(); ++col) squares += w(0, col) * w(0, col) * g(col, col);
    result.push_back(kSwapTolerance * NaiveLoss(weights, start.gram, rest) + kSwapNoise * squares);
  }
  return result;
}

TEST_P(RefineTest, NoExchangeLowersTheLossAfterwards) {
  for (const uint64_t seed : {1, 2, 3}) {
    for (const Pattern& pattern : Patterns()) {
      for (const bool keep_fixed : {true, false}) {
        SCOPED_TRACE(::testing::Message() << seed << " " << ToString(pattern) << " " << keep_fixed);
        const RandomLayer layer = MakeRandomLayer({.rows = 5,
                                                   .cols = 16,
                                                   .tokens = seed == 3 ? 10 : 0,  // G singular
                                                   .dead_columns = seed == 2 ? 2 : 0,
                                                   .seed = seed});
        SPARSEFW_ASSERT_OK_AND_ASSIGN(
            const StartingPoint start,
            MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, 0.5));
        SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask refined,
                                      Refine(GetParam(), start, {.keep_fixed = keep_fixed}));
        EXPECT_TRUE(refined.converged);
        EXPECT_GT(refined.swaps, 0);
        SPARSEFW_EXPECT_OK(ValidateMaskCounts(refined.mask, pattern, "refined"));
        if (keep_fixed) {
          EXPECT_TRUE(IsSubset(start.fixed, refined.mask));
        }
        const double before = NaiveLoss(start.weights, start.gram, start.warm);
        const double after = NaiveLoss(start.weights, start.gram, refined.mask);
        // G in float32 is another G by 6e-8.
        const double rounding = IsFloat32(GetParam()) ? 1e-6 : 1e-11;
        EXPECT_NEAR(refined.loss_change, after - before, rounding * before);
        EXPECT_LE(BestExcess(start, refined.mask, keep_fixed, Tolerances(start)), rounding);
        if (!keep_fixed) continue;
        EXPECT_GT(BestExcess(start, start.warm, true, Tolerances(start)), rounding)
            << "the check finds nothing to do from the start either";
      }
    }
  }
}

// Each ends in a local optimum of its own.
TEST_P(RefineTest, LossesAreNearThoseOfTheReference) {
  const RandomLayer layer = MakeRandomLayer({.rows = 40, .cols = 64, .seed = 4});
  for (const Pattern& pattern : Patterns()) {
    for (const double alpha : {0.0, 0.5, 0.9}) {
      SCOPED_TRACE(::testing::Message() << ToString(pattern) << " alpha " << alpha);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const StartingPoint start,
          MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, alpha));
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask expected,
                                    Refine(EngineKind::kReference, start));
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask actual, Refine(GetParam(), start));
      const double reached = NaiveLoss(start.weights, start.gram, actual.mask);
      const double reference = NaiveLoss(start.weights, start.gram, expected.mask);
      EXPECT_LE(reached, 1.05 * reference);
      EXPECT_LE(reference, 1.05 * reached);
      EXPECT_LT(reached, NaiveLoss(start.weights, start.gram, start.warm));
    }
  }
}

TEST_P(RefineTest, SameBitsForAnyNumberOfThreads) {
  const RandomLayer layer = MakeRandomLayer({.rows = 130, .cols = 72, .seed = 5});
  for (const Pattern& pattern : Patterns()) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const StartingPoint start,
        MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, 0.5));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask once,
                                  Refine(GetParam(), start, {}, {.threads = 1}));
    for (const int threads : {2, 4}) {
      if (IsCuda(GetParam()) && threads > 2) continue;  // threads of the host change nothing there
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask again,
                                    Refine(GetParam(), start, {}, {.threads = threads}));
      EXPECT_EQ(again.mask, once.mask);
      EXPECT_EQ(again.swaps, once.swaps);
      EXPECT_EQ(again.loss_change, once.loss_change);
    }
  }
}

TEST_P(RefineTest, OutOfTimeInTheMiddleLeavesAMaskThatIsBetterAndLegal) {
  const RandomLayer layer = MakeRandomLayer({.rows = 60, .cols = 64, .seed = 6});
  // The reference engine looks before every row that it prepares, too.
  const int first_looks = GetParam() == EngineKind::kReference ? 60 : 0;
  for (const Pattern& pattern : Patterns()) {
    SCOPED_TRACE(ToString(pattern));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const StartingPoint start,
        MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, 0.5));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask whole, Refine(GetParam(), start));
    std::atomic<int> looks = -first_looks;
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const RefinedMask part,
        Refine(GetParam(), start, {.out_of_time = [&] { return ++looks > 6; }}));
    EXPECT_FALSE(part.converged);
    EXPECT_GT(part.swaps, 0);
    EXPECT_LT(part.swaps, whole.swaps);
    EXPECT_LT(part.loss_change, 0);
    SPARSEFW_EXPECT_OK(ValidateMaskCounts(part.mask, pattern, "part"));
    EXPECT_TRUE(IsSubset(start.fixed, part.mask));
  }
}

TEST_P(RefineTest, AStopBeforeTheSwapsGivesTheStart) {
  const RandomLayer layer = MakeRandomLayer({.rows = 20, .cols = 32, .seed = 7});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.5), {}, 0));
  StopSignal stop;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine,
                                LoadedEngine(GetParam(), start, {.threads = 2, .stop = &stop}));
  stop.Request();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask refined, engine->Refine(start.warm, {}));
  EXPECT_EQ(refined.mask, start.warm);
  EXPECT_FALSE(refined.converged);
}

// Stopped somewhere in the middle; how far it came depends on the machine.
TEST_P(RefineTest, AStopFromAnotherThreadLeavesALegalMask) {
  const RandomLayer layer = MakeRandomLayer({.rows = 200, .cols = 96, .seed = 9});
  for (const Pattern& pattern : Patterns()) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const StartingPoint start,
        MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, 0));
    StopSignal stop;
    std::atomic<int> looks = 0;
    std::thread other([&] {
      while (looks < 5) std::this_thread::yield();
      stop.Request();
    });
    const auto count = [&] {
      ++looks;
      return false;
    };
    const auto refined =
        Refine(GetParam(), start, {.out_of_time = count}, {.threads = 2, .stop = &stop});
    looks = 5;
    other.join();
    SPARSEFW_ASSERT_OK(refined);
    SPARSEFW_EXPECT_OK(ValidateMaskCounts(refined->mask, pattern, "refined"));
    EXPECT_NEAR(NaiveLoss(start.weights, start.gram, refined->mask) -
                    NaiveLoss(start.weights, start.gram, start.warm),
                refined->loss_change, 1e-5 * NaiveLoss(start.weights, start.gram, start.warm));
  }
}

TEST_P(RefineTest, DegenerateLayersEnd) {
  RandomLayer zero_weights = MakeRandomLayer({.rows = 4, .cols = 16, .seed = 1});
  for (float& value : zero_weights.weights.span()) value = 0;
  RandomLayer zero_gram = MakeRandomLayer({.rows = 4, .cols = 16, .seed = 1});
  for (double& value : zero_gram.gram.span()) value = 0;
  RandomLayer twins = MakeRandomLayer({.rows = 4, .cols = 16, .seed = 1});  // G of rank 1
  for (double& value : twins.gram.span()) value = 1;
  RandomLayer indefinite = MakeRandomLayer({.rows = 4, .cols = 16, .seed = 1});
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 16; ++j) indefinite.gram(i, j) = i == j ? 0 : 1;
  }
  RandomLayer plain = MakeRandomLayer({.rows = 4, .cols = 16, .seed = 1});
  for (const RandomLayer* layer : {&zero_weights, &zero_gram, &twins, &indefinite, &plain}) {
    for (const Pattern& pattern :
         {Pattern::Unstructured(0.5), Pattern::PerRow(0.5), Pattern::KeepOfGroup(2, 4),
          Pattern::PerRow(0), Pattern::PerRow(1), Pattern::Unstructured(1),
          Pattern::Unstructured(0), Pattern::KeepOfGroup(4, 4)}) {
      SCOPED_TRACE(ToString(pattern));
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const StartingPoint start,
          MakeStartingPoint(layer->weights.view(), layer->gram.view(), pattern, {}, 0));
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask refined, Refine(GetParam(), start));
      EXPECT_TRUE(refined.converged);
      SPARSEFW_EXPECT_OK(ValidateMaskCounts(refined.mask, pattern, "refined"));
      EXPECT_LE(NaiveLoss(start.weights, start.gram, refined.mask),
                NaiveLoss(start.weights, start.gram, start.warm));
    }
  }
}

// Powers of two are exact, so nothing may change but the units.
TEST_P(RefineTest, ScalesOfTheInputsChangeNothing) {
  RandomLayer layer = MakeRandomLayer({.rows = 12, .cols = 32, .seed = 8});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StartingPoint start,
                                MakeStartingPoint(layer.weights.view(), layer.gram.view(),
                                                  Pattern::Unstructured(0.6), {}, 0.3));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask before, Refine(GetParam(), start));
  for (double& value : layer.gram.span()) value = std::ldexp(value, -300);
  for (float& value : layer.weights.span()) value = std::ldexp(value, -40);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask after, Refine(GetParam(), start));
  EXPECT_EQ(after.mask, before.mask);
  EXPECT_EQ(std::ldexp(after.loss_change, 380), before.loss_change);
}

// Rows take the exchanges in one order, so that they end in the same local optimum.
TEST(SweepOrderTest, RowsOfADeviceEndWhereThoseOfTheCpuEnd_cuda) {
  SPARSEFW_NEED_DEVICE(EngineKind::kCudaFloat64);
  for (const int64_t cols : {130, 700}) {
    SCOPED_TRACE(cols);
    const RandomLayer layer = MakeRandomLayer({.rows = 10, .cols = cols, .seed = 12});
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const StartingPoint start,
        MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.6), {}, 0.2));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask cpu, Refine(EngineKind::kCpuFloat64, start));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask device,
                                  Refine(EngineKind::kCudaFloat64, start));
    EXPECT_GT(cpu.swaps, 10 * 10) << "too few to tell their order";
    EXPECT_EQ(device.swaps, cpu.swaps);
    EXPECT_EQ(device.mask, cpu.mask);
    EXPECT_NEAR(device.loss_change, cpu.loss_change, -1e-9 * cpu.loss_change);
  }
}

}  // namespace
}  // namespace sparsefw
