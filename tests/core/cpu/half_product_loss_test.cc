// The loss of a mask by the engine's product beside the one from BLAS.
#include "core/src/cpu/linalg/half_product_loss.h"

#include <cstdint>

#include "core/src/linalg/mask_loss.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cpu {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::Random;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StatusIs;
using ::sparsefw::testing::TypedMatrix;

Mask RandomMask(int64_t rows, int64_t cols) {
  Random random(3);
  Mask mask(rows, cols);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      if (random.Uniform() < 0.4) mask.Set(row, col, true);
    }
  }
  return mask;
}

// Panels cut short, several blocks of rows, strides, and a G that is not symmetric.
TEST(HalfProductLossTest, IsTheLoss) {
  struct Case {
    int64_t rows, cols;
    DType weights, gram;
    int64_t padding;
  };
  for (const Case& c :
       {Case{1, 1, DType::kF32, DType::kF32, 0}, Case{7, 30, DType::kF16, DType::kF32, 2},
        Case{600, 20, DType::kBF16, DType::kF64, 0}, Case{3, 130, DType::kF32, DType::kF32, 5},
        Case{5, 128, DType::kF64, DType::kF64, 0}}) {
    RandomLayer layer =
        MakeRandomLayer({.rows = c.rows, .cols = c.cols, .large_columns = 0, .seed = 1});
    if (c.cols > 2) layer.gram(0, c.cols - 1) += 0.25F;
    const TypedMatrix weights(layer.weights.view(), c.weights, c.padding);
    const TypedMatrix gram(layer.gram.view(), c.gram, c.padding);
    const Mask mask = RandomMask(c.rows, c.cols);
    const ParallelContext context(2, nullptr);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Scale scale,
                                  ChooseScale(weights.view(), gram.view(), context));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double expected,
                                  MaskLoss(weights.view(), gram.view(), mask, scale, context));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const double loss, HalfProductLoss(weights.view(), gram.view(), mask, scale, context));
    EXPECT_NEAR(loss, expected, 1e-12 * expected) << c.rows << "x" << c.cols;
    const ParallelContext one(1, nullptr);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double again,
                                  HalfProductLoss(weights.view(), gram.view(), mask, scale, one));
    EXPECT_EQ(again, loss);
  }
}

TEST(HalfProductLossTest, StopsWhenAsked) {
  const RandomLayer layer = MakeRandomLayer({});
  StopSignal stop;
  stop.Request();
  const ParallelContext context(0, &stop);
  const Mask mask(layer.weights.rows(), layer.weights.cols());
  EXPECT_THAT(
      HalfProductLoss(layer.weights.view(), layer.gram.view(), mask, Scale{}, context).status(),
      StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace sparsefw::cpu
