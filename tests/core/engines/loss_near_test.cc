// Engine::LossNear: the loss from scratch, or that of another mask and the change between the two.
#include <cstdint>
#include <memory>

#include "gtest/gtest.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using testing::EngineKind;
using testing::Random;
using testing::TypedMatrix;

class LossNearTest : public ::testing::TestWithParam<EngineKind> {
 protected:
  void SetUp() override {
    SPARSEFW_NEED_DEVICE(GetParam());
    SPARSEFW_ASSERT_OK_AND_ASSIGN(backend_, testing::BackendOf(GetParam()));
  }
  // Whether it adds: then what is wrong with the known loss is wrong with the result.
  void Expect(ConstMatrixView weights, ConstMatrixView gram, double share, bool adds) {
    Random random(7);
    const Mask known = testing::RandomMask(weights.rows(), weights.cols(), random);
    const Mask mask = testing::Changed(known, share, random);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, backend_->CreateEngine({.threads = 1}));
    SPARSEFW_ASSERT_OK(engine->Load({.weights = weights,
                                     .gram = gram,
                                     .pattern = Pattern::PerRow(0.5),
                                     .saliency = scores_.view(),
                                     .warm = &known,
                                     .fixed = &known}));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double base, engine->Loss(known));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double loss, engine->Loss(mask));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double near, engine->LossNear(mask, {known, base}));
    EXPECT_NEAR(near, loss, 1e-13 * base);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double wrong, engine->LossNear(mask, {known, 1.5 * base}));
    EXPECT_NEAR(wrong, adds ? loss + 0.5 * base : loss, 1e-13 * base);
  }
  void Expect(const Matrix<double>& gram, double share, bool adds) {
    Expect(layer_.weights.view(), gram.view(), share, adds);
  }

  Matrix<double> Gram(double factor) const {
    Matrix<double> gram(layer_.gram.rows(), layer_.gram.cols());
    for (int64_t i = 0; i < gram.size(); ++i) gram.data()[i] = factor * layer_.gram.data()[i];
    return gram;
  }

  const testing::RandomLayer layer_ = testing::MakeRandomLayer({.rows = 30, .cols = 100});
  const Matrix<float> scores_{30, 100};
  const Backend* backend_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Engines, LossNearTest,
                         ::testing::Values(EngineKind::kCpuFloat64, EngineKind::kCudaFloat64),
                         [](const auto& test) { return testing::NameOf(test.param); });

TEST_P(LossNearTest, OfFewDifferences) {
  Expect(Gram(1), 0.02, true);
  Expect(Gram(1), 0, true);
  const TypedMatrix weights(layer_.weights.view(), DType::kBF16);
  const TypedMatrix gram(layer_.gram.view(), DType::kF32);
  Expect(weights.view(), gram.view(), 0.02, true);
}

TEST_P(LossNearTest, OfManyDifferences) { Expect(Gram(1), 0.5, false); }

// More columns than a device lists at once.
TEST_P(LossNearTest, OfLongRows) {
  constexpr int64_t kCols = 2200;
  Matrix<float> weights(3, kCols);
  Random random(3);
  for (int64_t i = 0; i < weights.size(); ++i) {
    weights.data()[i] = static_cast<float>(random.Uniform() - 0.5);
  }
  Matrix<float> gram(kCols, kCols);
  for (int64_t row = 0; row < kCols; ++row) {
    for (int64_t col = 0; col < kCols; ++col) {
      gram(row, col) = (row == col ? 2.0F : 0.5F) / static_cast<float>(1 + row % 7 + col % 7);
    }
  }
  Expect(weights.view(), gram.view(), 0.03, true);
}

TEST_P(LossNearTest, OfAnAsymmetricGram) {
  Matrix<double> gram = Gram(1);
  gram(0, 99) *= 1.001;
  for (int64_t col = 0; col < 50; ++col) gram(col, 50 + col) += 1;
  Expect(gram, 0.02, false);
}

TEST_P(LossNearTest, OfEntriesNearTheEndsOfTheRange) {
  Expect(Gram(0x1p900), 0.02, false);
  Expect(Gram(0x1p-900), 0.02, false);
  Expect(Gram(0x1p-300), 0.02, true);
}

}  // namespace
}  // namespace sparsefw
