// Engines that choose the start themselves (EngineProblem::choice): the masks of the host, bit for
// bit, and Round's ties by scores that they compute.
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/saliency.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using testing::EngineKind;
using testing::TypedMatrix;
using TestMessage = ::testing::Message;

constexpr int64_t kRows = 23;
constexpr int64_t kCols = 144;  // rows have padding on the device

// Weights with many equal scores, and rows, columns and inputs that are 0.
testing::RandomLayer TiedLayer() {
  testing::RandomLayer layer =
      testing::MakeRandomLayer({.rows = kRows, .cols = kCols, .dead_columns = 60, .seed = 11});
  for (int64_t col = 0; col < kCols; ++col) layer.weights(7, col) = 0;
  for (int64_t row = 0; row < kRows; ++row) layer.weights(row, 3) = 0;
  for (int64_t col = 0; col < kCols; ++col) layer.weights(8, col) = col % 2 == 0 ? 1.0F : -1.0F;
  return layer;
}

std::vector<double> DiagonalOf(const Matrix<double>& gram) {
  std::vector<double> diagonal;
  for (int64_t i = 0; i < gram.rows(); ++i) diagonal.push_back(gram(i, i));
  return diagonal;
}

class StartChoiceTest
    : public ::testing::TestWithParam<std::tuple<Pattern, SaliencyMethod, DType>> {
 protected:
  void SetUp() override { SPARSEFW_NEED_DEVICE(EngineKind::kCudaFloat32); }
};

TEST_P(StartChoiceTest, IsThatOfTheHost) {
  const auto& [pattern, method, dtype] = GetParam();
  const testing::RandomLayer layer = TiedLayer();
  const TypedMatrix weights(layer.weights.view(), dtype, 5);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SaliencySource source,
      MakeSaliencySource(weights.view(), DiagonalOf(layer.gram), {.method = method}));
  const Matrix<float> scores = ScoresOf(source);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask top, TopScores(scores.view(), pattern));
  // A start that saliency would not choose.
  Matrix<float> turned(kRows, kCols);
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    turned(i / kCols, i % kCols) = -scores(i / kCols, i % kCols);
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask other, TopScores(turned.view(), pattern));

  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* backend,
                                testing::BackendOf(EngineKind::kCudaFloat32));
  ASSERT_TRUE(backend->chooses_start());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, backend->CreateEngine({.threads = 1}));
  for (const bool given : {false, true}) {
    for (const double alpha : {0.0, 0.31, 0.9, 1.0}) {
      SCOPED_TRACE(TestMessage() << "given " << given << ", alpha " << alpha);
      Mask warm = given ? other : Mask();
      Mask fixed;
      const StartChoice choice = {
          .warm = &warm, .fixed = &fixed, .warm_is_given = given, .alpha = alpha};
      ASSERT_TRUE(engine
                      ->Load({.weights = weights.view(),
                              .gram = layer.gram.view(),
                              .pattern = pattern,
                              .saliency = source,
                              .warm = &warm,
                              .fixed = &fixed,
                              .choice = &choice,
                              .reused = true})
                      .ok());
      EXPECT_EQ(warm, given ? other : top);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask expected,
                                    FixedSet(scores.view(), warm, pattern, alpha));
      EXPECT_EQ(fixed, expected);
    }
  }
}

TEST_P(StartChoiceTest, EverythingMayBeFixed) {
  const auto& [pattern, method, dtype] = GetParam();
  const testing::RandomLayer layer = TiedLayer();
  const TypedMatrix weights(layer.weights.view(), dtype, 5);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SaliencySource source,
      MakeSaliencySource(weights.view(), DiagonalOf(layer.gram), {.method = method}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* backend,
                                testing::BackendOf(EngineKind::kCudaFloat32));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, backend->CreateEngine({.threads = 1}));
  Mask warm;
  Mask fixed;
  const StartChoice choice = {.warm = &warm, .fixed = &fixed, .fix_all = true};
  ASSERT_TRUE(engine
                  ->Load({.weights = weights.view(),
                          .gram = layer.gram.view(),
                          .pattern = pattern,
                          .saliency = source,
                          .warm = &warm,
                          .fixed = &fixed,
                          .choice = &choice})
                  .ok());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask top, TopScores(ScoresOf(source).view(), pattern));
  EXPECT_EQ(warm, top);
  EXPECT_EQ(fixed, top);
}

std::string NameOfStart(const ::testing::TestParamInfo<StartChoiceTest::ParamType>& test) {
  const auto& [pattern, method, dtype] = test.param;
  return testing::NameOf(pattern) + "_" + std::string(NameOf(method)) + "_" +
         std::string(DTypeName(dtype));
}

INSTANTIATE_TEST_SUITE_P(
    Starts, StartChoiceTest,
    ::testing::Combine(::testing::Values(Pattern::Unstructured(0.6), Pattern::PerRow(0.6),
                                         Pattern::KeepOfGroup(2, 4), Pattern::KeepOfGroup(30, 72)),
                       ::testing::Values(SaliencyMethod::kMagnitude, SaliencyMethod::kWanda,
                                         SaliencyMethod::kRia),
                       ::testing::Values(DType::kF32, DType::kF16, DType::kBF16)),
    NameOfStart);

// The first open-loop step leaves all of M at 0 where no score is above 0: what Round keeps is
// decided by saliency alone, by that of a source as by the same scores as a matrix.
TEST(StartChoiceRoundTest, TiesAreBrokenByScoresOfTheDevice) {
  SPARSEFW_NEED_DEVICE(EngineKind::kCudaFloat32);
  const testing::RandomLayer layer = TiedLayer();
  const Matrix<double> gram(kCols, kCols);  // no input: every loss is 0
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SaliencySource source,
                                MakeSaliencySource(layer.weights.view(), DiagonalOf(layer.gram),
                                                   {.method = SaliencyMethod::kRia}));
  const Matrix<float> scores = ScoresOf(source);
  const Pattern pattern = Pattern::PerRow(0.5);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask expected, TopScores(scores.view(), pattern));
  Matrix<float> turned(kRows, kCols);
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    turned(i / kCols, i % kCols) = -scores(i / kCols, i % kCols);
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask warm, TopScores(turned.view(), pattern));
  const Mask fixed(kRows, kCols);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* backend,
                                testing::BackendOf(EngineKind::kCudaFloat32));
  for (const SaliencySource& saliency : {source, SaliencySource(scores.view())}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, backend->CreateEngine({.threads = 1}));
    ASSERT_TRUE(engine
                    ->Load({.weights = layer.weights.view(),
                            .gram = gram.view(),
                            .pattern = pattern,
                            .saliency = saliency,
                            .warm = &warm,
                            .fixed = &fixed})
                    .ok());
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine->Step({.count = 1}));
    EXPECT_EQ(stats.step_size, 1);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine->Round());
    EXPECT_EQ(rounded.mask, expected);
  }
}

}  // namespace
}  // namespace sparsefw
