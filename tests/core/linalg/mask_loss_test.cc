#include "core/src/linalg/mask_loss.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StatusIs;
using ::sparsefw::testing::ToDouble;
using ::sparsefw::testing::TypedMatrix;

absl::StatusOr<double> WeightsLoss(ConstMatrixView weights, const Matrix<float>& updated,
                                   ConstMatrixView gram, const ParallelContext& context) {
  const absl::StatusOr<Scale> scale = ChooseScale(weights, gram, ParallelContext(0));
  if (!scale.ok()) return scale.status();
  return LossOfWeights(weights, gram, updated, *scale, context);
}

// sum_ij D_ri G_ij D_rj, by three loops.
double NaiveWeightsLoss(ConstMatrixView weights, ConstMatrixView updated, ConstMatrixView gram) {
  const Matrix<double> w = ToDouble(weights);
  const Matrix<double> u = ToDouble(updated);
  const Matrix<double> g = ToDouble(gram);
  double loss = 0;
  for (int64_t row = 0; row < w.rows(); ++row) {
    for (int64_t i = 0; i < w.cols(); ++i) {
      double product = 0;
      for (int64_t j = 0; j < w.cols(); ++j) product += g(i, j) * (w(row, j) - u(row, j));
      loss += (w(row, i) - u(row, i)) * product;
    }
  }
  return loss;
}

// Below and beyond the blocks of 512 rows and columns.
TEST(LossOfWeightsTest, IsTheDefinition) {
  struct Case {
    int64_t rows, cols;
    DType dtype;
    int64_t padding;
  };
  for (const Case& c : {Case{1, 1, DType::kF32, 0}, Case{7, 30, DType::kF16, 2},
                        Case{600, 20, DType::kBF16, 0}, Case{3, 530, DType::kF32, 5}}) {
    const RandomLayer layer =
        MakeRandomLayer({.rows = c.rows, .cols = c.cols, .large_columns = 0, .seed = 1});
    const RandomLayer other =
        MakeRandomLayer({.rows = c.rows, .cols = c.cols, .large_columns = 0, .seed = 2});
    const TypedMatrix weights(layer.weights.view(), c.dtype, c.padding);
    const TypedMatrix gram(layer.gram.view(), DType::kF32, c.padding);
    const ParallelContext context(0, nullptr);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double loss,
                                  WeightsLoss(weights.view(), other.weights, gram.view(), context));
    const double expected = NaiveWeightsLoss(weights.view(), other.weights.view(), gram.view());
    EXPECT_NEAR(loss, expected, 1e-12 * expected) << c.rows << "x" << c.cols;
    const ParallelContext one(1, nullptr);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double again,
                                  WeightsLoss(weights.view(), other.weights, gram.view(), one));
    EXPECT_EQ(again, loss);
  }
}

TEST(LossOfWeightsTest, OfTheSameWeightsIsZero) {
  const RandomLayer layer = MakeRandomLayer({});
  const ParallelContext context(0, nullptr);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const double loss, WeightsLoss(layer.weights.view(), layer.weights,
                                                               layer.gram.view(), context));
  EXPECT_EQ(loss, 0);
}

TEST(LossOfWeightsTest, StopsWhenAsked) {
  const RandomLayer layer = MakeRandomLayer({});
  StopSignal stop;
  stop.Request();
  const ParallelContext context(0, &stop);
  EXPECT_THAT(WeightsLoss(layer.weights.view(), layer.weights, layer.gram.view(), context),
              StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace sparsefw
