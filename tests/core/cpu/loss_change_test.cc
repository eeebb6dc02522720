// The loss of a mask by its difference from another one's, against three loops.
#include "core/src/cpu/linalg/loss_change.h"

#include <bit>
#include <cstdint>

#include "core/src/linalg/scaled_layer.h"
#include "gtest/gtest.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cpu {
namespace {

using ::sparsefw::testing::Changed;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::NaiveLoss;
using ::sparsefw::testing::Random;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::RandomMask;
using ::sparsefw::testing::StatusIs;
using ::sparsefw::testing::TypedMatrix;

// Widths of whole vectors and of less than one; every number of rows of G from none on.
TEST(LossChangeTest, IsTheDifferenceOfTheLosses) {
  struct Case {
    int64_t rows, cols;
    DType weights, gram;
    int64_t padding;
    double share;
  };
  for (const Case& c : {Case{3, 1, DType::kF32, DType::kF32, 0, 0.5},
                        Case{40, 30, DType::kF16, DType::kF32, 3, 0.1},
                        Case{40, 128, DType::kBF16, DType::kF64, 0, 0.03},
                        Case{5, 77, DType::kF32, DType::kF64, 2, 1.0},
                        Case{20, 64, DType::kF32, DType::kF32, 1, 0.0}}) {
    const RandomLayer layer = MakeRandomLayer({.rows = c.rows, .cols = c.cols, .large_columns = 0});
    const TypedMatrix weights(layer.weights.view(), c.weights, c.padding);
    const TypedMatrix gram(layer.gram.view(), c.gram, c.padding);
    Random random(5);
    const Mask from = RandomMask(c.rows, c.cols, random);
    const Mask to = Changed(from, c.share, random);
    const ParallelContext context(2);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Scale scale,
                                  ChooseScale(weights.view(), gram.view(), context));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const double change, LossChange(weights.view(), gram.view(), from, to, scale, context));
    const double before = NaiveLoss(weights.view(), gram.view(), from);
    const double after = NaiveLoss(weights.view(), gram.view(), to);
    EXPECT_NEAR(change, after - before, 1e-12 * (before + after)) << c.rows << "x" << c.cols;
    if (c.share == 0) {
      EXPECT_EQ(change, 0);
    }
    const ParallelContext one(1);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double again,
                                  LossChange(weights.view(), gram.view(), from, to, scale, one));
    EXPECT_EQ(std::bit_cast<uint64_t>(again), std::bit_cast<uint64_t>(change));
  }
}

TEST(LossChangeTest, OneEntryOffTheDiagonalMakesItAsymmetric) {
  const RandomLayer layer = MakeRandomLayer({.cols = 200});
  const ParallelContext context(2);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    TypedMatrix gram(layer.gram.view(), dtype, 1);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const bool symmetric, IsSymmetric(gram.view(), context));
    EXPECT_TRUE(symmetric);
    gram.Set(3, 150, 1.5);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const bool still, IsSymmetric(gram.view(), context));
    EXPECT_FALSE(still);
  }
}

TEST(LossChangeTest, StopsWhenAsked) {
  const RandomLayer layer = MakeRandomLayer({});
  StopSignal stop;
  stop.Request();
  const ParallelContext context(1, &stop);
  const Mask mask(16, 32);
  EXPECT_THAT(IsSymmetric(layer.gram.view(), context), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(LossChange(layer.weights.view(), layer.gram.view(), mask, mask, Scale{}, context),
              StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace sparsefw::cpu
