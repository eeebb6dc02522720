// The CUDA engine updates U in two forms, whichever it would choose itself: by
// rows of G, and by dense products. Both are the same iteration.
#include <cmath>
#include <cstdlib>
#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::EngineKind;
using ::sparsefw::testing::LoadedEngine;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::NameOf;
using ::sparsefw::testing::Random;

struct Shape {
  int64_t rows;
  int64_t cols;
};

using FormParam = std::tuple<Shape, Pattern, double>;
class DenseUpdateTest : public ::testing::TestWithParam<FormParam> {
 protected:
  void SetUp() override { SPARSEFW_NEED_DEVICE(EngineKind::kCudaFloat32); }
};

std::string FormTestName(const FormParam& param) {
  const auto& [shape, pattern, alpha] = param;
  return "cuda_" + std::to_string(shape.rows) + "x" + std::to_string(shape.cols) + "_" +
         NameOf(pattern) + (alpha == 0 ? "_alpha_0" : "_alpha_09");
}

// At alpha = 0 most coordinates toggle in the first iterations.
TEST_P(DenseUpdateTest, IsTheUpdateByRows) {
  const auto& [shape, pattern, alpha] = GetParam();
  const auto layer = MakeRandomLayer({.rows = shape.rows, .cols = shape.cols, .seed = 4});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const auto start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, alpha));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto reference, LoadedEngine(EngineKind::kReference, start));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto rows, LoadedEngine(EngineKind::kCudaFloat32, start,
                                                              {.tuning = {.dense_share = 2}}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto dense, LoadedEngine(EngineKind::kCudaFloat32, start,
                                                               {.tuning = {.dense_share = 0}}));
  for (const int64_t count : {1, 4, 5}) {
    SCOPED_TRACE(count);
    const StepRequest request = {.count = count, .measure_drift = true};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats exact, reference->Step({.count = count}));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats by_rows, rows->Step(request));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats by_dense, dense->Step(request));
    EXPECT_NEAR(by_dense.relaxed_loss, exact.relaxed_loss, 1e-4 * exact.relaxed_loss);
    // One toggle that rounding decides otherwise may follow from another order of sums.
    EXPECT_NEAR(by_dense.relaxed_loss, by_rows.relaxed_loss, 1e-5 * by_rows.relaxed_loss);
    EXPECT_LT(by_dense.drift, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DenseUpdateTest,
    ::testing::Combine(::testing::Values(Shape{70, 330}, Shape{300, 130}, Shape{64, 64}),
                       ::testing::Values(Pattern::Unstructured(0.6), Pattern::KeepOfGroup(1, 2)),
                       ::testing::Values(0.0, 0.9)),
    [](const auto& test) { return FormTestName(test.param); });

TEST(UpdateFormTest, ChangesWithTheTogglesAndNotWithTheCallsOfStep_cuda) {
  SPARSEFW_NEED_DEVICE(EngineKind::kCudaFloat32);
  const auto layer = MakeRandomLayer({.rows = 80, .cols = 130, .seed = 8});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const auto start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.6), {}, 0.5));
  // Dense at first, then rows.
  const EngineOptions options = {.tuning = {.dense_share = 0.04}};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto reference, LoadedEngine(EngineKind::kReference, start));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto whole,
                                LoadedEngine(EngineKind::kCudaFloat32, start, options));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto pieces,
                                LoadedEngine(EngineKind::kCudaFloat32, start, options));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats expected, reference->Step({.count = 90}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats actual, whole->Step({.count = 90}));
  StepStats last;
  for (const int64_t count : {1, 30, 2, 16, 0, 41}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(last, pieces->Step({.count = count}));
  }
  EXPECT_NEAR(actual.relaxed_loss, expected.relaxed_loss, 1e-4 * expected.relaxed_loss);
  EXPECT_EQ(last.relaxed_loss, actual.relaxed_loss);
  EXPECT_EQ(last.gap, actual.gap);
}

// A row toggles more than a list has room for; and a row may not fit shared memory.
TEST(UpdateFormTest, LongRowsAreThoseOfTheReference_cuda) {
  SPARSEFW_NEED_DEVICE(EngineKind::kCudaFloat64);
  for (const int64_t cols : {3500, 4300}) {
    SCOPED_TRACE(cols);
    Matrix<float> weights(2, cols);
    Random random(21);
    for (int64_t i = 0; i < weights.size(); ++i) {
      weights.data()[i] = static_cast<float>(random.Uniform() - 0.5);
    }
    Matrix<float> gram(cols, cols);
    for (int64_t row = 0; row < cols; ++row) {
      for (int64_t col = 0; col < cols; ++col) {
        gram(row, col) =
            static_cast<float>(std::exp(-0.1 * static_cast<double>(std::abs(row - col))));
      }
    }
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto start, MakeStartingPoint(weights.view(), gram.view(),
                                                                      Pattern::PerRow(0.6), {}, 0));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto reference,
                                  LoadedEngine(EngineKind::kReference, start));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(EngineKind::kCudaFloat64, start,
                                                                  {.tuning = {.dense_share = 2}}));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats expected, reference->Step({.count = 6}));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats actual, engine->Step({.count = 6}));
    EXPECT_EQ(actual.toggled, expected.toggled);
    EXPECT_GT(actual.toggled, 2 * 1024) << "no list was too short";
    EXPECT_NEAR(actual.relaxed_loss, expected.relaxed_loss, 1e-9 * expected.relaxed_loss);
    EXPECT_NEAR(actual.gap, expected.gap, 1e-9 * expected.relaxed_loss);
  }
}

}  // namespace
}  // namespace sparsefw
