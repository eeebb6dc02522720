// Engines that choose the start themselves (EngineProblem::choice): the masks of the host, bit for
// bit, and Round's ties by scores that they compute.
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/saliency.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using testing::EngineKind;
using testing::IsOk;
using testing::TypedMatrix;

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

// A start that saliency would not choose.
absl::StatusOr<Mask> LowestScores(const Matrix<float>& scores, const Pattern& pattern) {
  Matrix<float> turned(kRows, kCols);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col) turned(row, col) = -scores(row, col);
  }
  return TopScores(turned.view(), pattern);
}

class StartChoiceTest
    : public ::testing::TestWithParam<std::tuple<Pattern, SaliencyMethod, DType>> {
 protected:
  void SetUp() override {
    SPARSEFW_NEED_DEVICE(EngineKind::kCudaFloat32);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        source_, MakeSaliencySource(weights_.view(), DiagonalOf(layer_.gram),
                                    {.method = std::get<SaliencyMethod>(GetParam())}));
    scores_ = ScoresOf(source_);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(top_, TopScores(scores_.view(), pattern()));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* backend,
                                  testing::BackendOf(EngineKind::kCudaFloat32));
    ASSERT_TRUE(backend->chooses_start());
    SPARSEFW_ASSERT_OK_AND_ASSIGN(engine_, backend->CreateEngine({.threads = 1}));
  }

  const Pattern& pattern() const { return std::get<Pattern>(GetParam()); }

  absl::Status Load(const StartChoice& choice) {
    return engine_->Load({.weights = weights_.view(),
                          .gram = layer_.gram.view(),
                          .pattern = pattern(),
                          .saliency = source_,
                          .warm = choice.warm,
                          .fixed = choice.fixed,
                          .choice = &choice,
                          .reused = true});
  }

  const testing::RandomLayer layer_ = TiedLayer();
  const TypedMatrix weights_{layer_.weights.view(), std::get<DType>(GetParam()), 5};
  SaliencySource source_;
  Matrix<float> scores_;
  Mask top_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(StartChoiceTest, IsThatOfTheHost) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask other, LowestScores(scores_, pattern()));
  for (const bool given : {false, true}) {
    for (const double alpha : {0.0, 0.31, 0.9, 1.0}) {
      SCOPED_TRACE(::testing::Message() << "given " << given << ", alpha " << alpha);
      Mask warm = given ? other : Mask();
      Mask fixed;
      ASSERT_THAT(Load({.warm = &warm, .fixed = &fixed, .warm_is_given = given, .alpha = alpha}),
                  IsOk());
      EXPECT_EQ(warm, given ? other : top_);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask expected,
                                    FixedSet(scores_.view(), warm, pattern(), alpha));
      EXPECT_EQ(fixed, expected);
    }
  }
}

TEST_P(StartChoiceTest, EverythingMayBeFixed) {
  Mask warm;
  Mask fixed;
  ASSERT_THAT(Load({.warm = &warm, .fixed = &fixed, .fix_all = true}), IsOk());
  EXPECT_EQ(warm, top_);
  EXPECT_EQ(fixed, top_);
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
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask warm, LowestScores(scores, pattern));
  const Mask fixed(kRows, kCols);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* backend,
                                testing::BackendOf(EngineKind::kCudaFloat32));
  for (const SaliencySource& saliency : {source, SaliencySource(scores.view())}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, backend->CreateEngine({.threads = 1}));
    ASSERT_THAT(engine->Load({.weights = layer.weights.view(),
                              .gram = gram.view(),
                              .pattern = pattern,
                              .saliency = saliency,
                              .warm = &warm,
                              .fixed = &fixed}),
                IsOk());
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine->Step({.count = 1}));
    EXPECT_EQ(stats.step_size, 1);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine->Round());
    EXPECT_EQ(rounded.mask, expected);
  }
}

}  // namespace
}  // namespace sparsefw
