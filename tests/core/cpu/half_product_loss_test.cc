// The loss by the engine's product beside its definition.
#include "core/src/cpu/linalg/half_product_loss.h"

#include <cstdint>

#include "core/src/linalg/scaled_layer.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cpu {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::Random;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StatusIs;
using ::sparsefw::testing::ToDouble;
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

// sum_ij D_ri G_ij D_rj, by three loops.
double NaiveLoss(ConstMatrixView weights, ConstMatrixView kept, ConstMatrixView gram) {
  const Matrix<double> w = ToDouble(weights);
  const Matrix<double> u = ToDouble(kept);
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

Matrix<double> Masked(ConstMatrixView weights, const Mask& mask) {
  Matrix<double> kept = ToDouble(weights);
  for (int64_t row = 0; row < kept.rows(); ++row) {
    for (int64_t col = 0; col < kept.cols(); ++col) {
      if (!mask.Get(row, col)) kept(row, col) = 0;
    }
  }
  return kept;
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
        Case{600, 20, DType::kBF16, DType::kF64, 0}, Case{3, 530, DType::kF32, DType::kF32, 5},
        Case{5, 128, DType::kF64, DType::kF64, 0}}) {
    RandomLayer layer =
        MakeRandomLayer({.rows = c.rows, .cols = c.cols, .large_columns = 0, .seed = 1});
    const RandomLayer other =
        MakeRandomLayer({.rows = c.rows, .cols = c.cols, .large_columns = 0, .seed = 2});
    if (c.cols > 2) layer.gram(0, c.cols - 1) += 0.25F;
    const TypedMatrix weights(layer.weights.view(), c.weights, c.padding);
    const TypedMatrix gram(layer.gram.view(), c.gram, c.padding);
    const Mask mask = RandomMask(c.rows, c.cols);
    const ParallelContext context(2, nullptr);
    const ParallelContext one(1, nullptr);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Scale scale,
                                  ChooseScale(weights.view(), gram.view(), context));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const double loss, HalfProductLoss(weights.view(), gram.view(), mask, scale, context));
    const double expected =
        NaiveLoss(weights.view(), Masked(weights.view(), mask).view(), gram.view());
    EXPECT_NEAR(loss, expected, 1e-12 * expected) << c.rows << "x" << c.cols;
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double again,
                                  HalfProductLoss(weights.view(), gram.view(), mask, scale, one));
    EXPECT_EQ(again, loss);
    const auto of_weights = [&](const ParallelContext& on) {
      return HalfProductLossOfWeights(weights.view(), gram.view(), other.weights, scale, on);
    };
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double with_others, of_weights(context));
    const double naive = NaiveLoss(weights.view(), other.weights.view(), gram.view());
    EXPECT_NEAR(with_others, naive, 1e-12 * naive) << c.rows << "x" << c.cols;
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double others_again, of_weights(one));
    EXPECT_EQ(others_again, with_others);
  }
}

TEST(HalfProductLossTest, OfTheSameWeightsIsZero) {
  const RandomLayer layer = MakeRandomLayer({});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const double loss, HalfProductLossOfWeights(layer.weights.view(), layer.gram.view(),
                                                  layer.weights, Scale{}, ParallelContext(0)));
  EXPECT_EQ(loss, 0);
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
  EXPECT_THAT(HalfProductLossOfWeights(layer.weights.view(), layer.gram.view(), layer.weights,
                                       Scale{}, context),
              StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace sparsefw::cpu
