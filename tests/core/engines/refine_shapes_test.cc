// Swap refinement of every engine on shapes at which their algorithms change:
// rows longer than a thread block, groups of many columns, one row, many rows.
// 1-swap optimal by the formula for every exchange.
#include <algorithm>
#include <limits>
#include <vector>

#include "core/src/frank_wolfe/swap_tolerance.h"
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
using ::sparsefw::testing::NameOf;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StartingPoint;

// W, G and E = D(mask) G in float64, by plain loops.
struct Exchanges {
  Exchanges(const StartingPoint& start, const Mask& kept, bool keep_fixed)
      : mask(kept),
        fixed(keep_fixed ? start.fixed : Mask(kept.rows(), kept.cols())),
        groups(GroupsOf(start.pattern, kept.rows(), kept.cols())),
        weights(testing::ToDouble(start.weights)),
        gram(testing::ToDouble(start.gram)),
        product(kept.rows(), kept.cols()) {
    for (int64_t row = 0; row < kept.rows(); ++row) {
      for (int64_t i = 0; i < kept.cols(); ++i) {
        if (mask.Get(row, i)) continue;
        for (int64_t j = 0; j < kept.cols(); ++j) product(row, j) += weights(row, i) * gram(i, j);
      }
    }
  }

  double RowLoss(int64_t row) const {
    double loss = 0;
    for (int64_t col = 0; col < mask.cols(); ++col) {
      if (!mask.Get(row, col)) loss += weights(row, col) * product(row, col);
    }
    return loss;
  }
  double Loss() const {
    double loss = 0;
    for (int64_t row = 0; row < mask.rows(); ++row) loss += RowLoss(row);
    return loss;
  }
  double Tolerance(int64_t row) const {
    double squares = 0;
    for (int64_t col = 0; col < mask.cols(); ++col) {
      squares += weights(row, col) * weights(row, col) * gram(col, col);
    }
    return kSwapTolerance * std::max(0.0, RowLoss(row)) + kSwapNoise * squares;
  }
  bool Movable(int64_t row, int64_t col) const {
    return mask.Get(row, col) && !fixed.Get(row, col);
  }
  double Out(int64_t row, int64_t p) const {
    const double w = weights(row, p);
    return 2 * w * product(row, p) + w * w * gram(p, p);
  }
  double In(int64_t row, int64_t q) const {
    const double w = weights(row, q);
    return -2 * w * product(row, q) + w * w * gram(q, q);
  }

  // The least change of the loss, tolerances added, of any exchange.
  double Least(const std::vector<double>& tolerance) const {
    double least = std::numeric_limits<double>::infinity();
    for (int64_t row = 0; row < mask.rows(); ++row) {
      const double allowed = tolerance[static_cast<size_t>(row)];
      for (int64_t p = 0; p < mask.cols(); ++p) {
        if (!Movable(row, p)) continue;
        for (int64_t q = 0; q < mask.cols(); ++q) {
          if (mask.Get(row, q) || p / groups.group_cols != q / groups.group_cols) continue;
          const double together = 2 * weights(row, p) * weights(row, q) * gram(p, q);
          least = std::min(least, Out(row, p) + In(row, q) - together + allowed);
        }
      }
    }
    return groups.whole_matrix ? std::min(least, LeastBetweenRows(tolerance)) : least;
  }

  double LeastBetweenRows(const std::vector<double>& tolerance) const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const auto count = static_cast<size_t>(mask.rows());
    std::vector<double> outs(count, kInfinity);
    std::vector<double> ins(count, kInfinity);
    for (int64_t row = 0; row < mask.rows(); ++row) {
      const auto index = static_cast<size_t>(row);
      for (int64_t col = 0; col < mask.cols(); ++col) {
        if (Movable(row, col)) outs[index] = std::min(outs[index], Out(row, col));
        if (!mask.Get(row, col)) ins[index] = std::min(ins[index], In(row, col));
      }
    }
    double least = kInfinity;
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < count; ++j) {
        if (i == j) continue;
        least = std::min(least, outs[i] + ins[j] + tolerance[i] + tolerance[j]);
      }
    }
    return least;
  }

  const Mask& mask;
  Mask fixed;
  Groups groups;
  Matrix<double> weights;
  Matrix<double> gram;
  Matrix<double> product;
};

struct Shape {
  int64_t rows;
  int64_t cols;
  Pattern pattern;
};

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {3, 160, Pattern::PerRow(0.6)},          {2, 300, Pattern::PerRow(0.5)},
      {4, 80, Pattern::Unstructured(0.5)},     {1, 70, Pattern::Unstructured(0.5)},
      {2, 320, Pattern::KeepOfGroup(70, 160)}, {2, 128, Pattern::KeepOfGroup(20, 64)},
      {300, 3, Pattern::Unstructured(0.5)},    {3, 1, Pattern::Unstructured(0.4)}};
  return shapes;
}

class RefineShapesTest : public ::testing::TestWithParam<EngineKind> {
 protected:
  void SetUp() override { SPARSEFW_NEED_DEVICE(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Engines, RefineShapesTest, ::testing::ValuesIn(kAllEngines),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(RefineShapesTest, NoExchangeLowersTheLossAfterwards) {
  for (const Shape& shape : Shapes()) {
    for (const bool keep_fixed : {true, false}) {
      SCOPED_TRACE(::testing::Message() << shape.rows << "x" << shape.cols << " "
                                        << ToString(shape.pattern) << " " << keep_fixed);
      const RandomLayer layer = MakeRandomLayer({.rows = shape.rows, .cols = shape.cols});
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const StartingPoint start,
          MakeStartingPoint(layer.weights.view(), layer.gram.view(), shape.pattern, {}, 0.3));
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(GetParam(), start));
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const RefinedMask refined,
                                    engine->Refine(start.warm, {.keep_fixed = keep_fixed}));
      EXPECT_TRUE(refined.converged);
      SPARSEFW_EXPECT_OK(ValidateMaskCounts(refined.mask, shape.pattern, "refined"));
      if (keep_fixed) {
        EXPECT_TRUE(IsSubset(start.fixed, refined.mask));
      }
      const Exchanges before(start, start.warm, keep_fixed);
      const Exchanges after(start, refined.mask, keep_fixed);
      std::vector<double> tolerance;
      for (int64_t row = 0; row < shape.rows; ++row) tolerance.push_back(before.Tolerance(row));
      // G in float32 is another G by 6e-8.
      const double rounding = (IsFloat32(GetParam()) ? 1e-6 : 1e-11) * before.Loss();
      EXPECT_NEAR(refined.loss_change, after.Loss() - before.Loss(), rounding);
      EXPECT_GE(after.Least(tolerance), -rounding);
      if (shape.cols == 1) continue;
      EXPECT_LT(before.Least(tolerance), -rounding) << "nothing to do from the start";
      EXPECT_GT(refined.swaps, 0);
    }
  }
}

}  // namespace
}  // namespace sparsefw
