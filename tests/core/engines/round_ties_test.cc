// Which weights are kept where the relaxed mask does not decide: all engines alike.

#include "gtest/gtest.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/matchers.h"

namespace sparsefw {
namespace {

using testing::EngineKind;

class RoundTiesTest : public ::testing::TestWithParam<EngineKind> {};

// Weights of 0 have no score, so that the first open-loop step leaves all of M at 0.
TEST_P(RoundTiesTest, ZerosOfEitherSignAreEqualSaliencies) {
  SPARSEFW_NEED_DEVICE(GetParam());
  constexpr int64_t kCols = 8;
  const Matrix<float> weights(1, kCols);
  Matrix<float> gram(kCols, kCols);
  for (int64_t i = 0; i < kCols; ++i) gram(i, i) = 1;
  // The higher columns have the zero whose bits are the smaller number.
  Matrix<float> saliency(1, kCols);
  for (int64_t col = 0; col < kCols; ++col) saliency(0, col) = col < kCols / 2 ? 0.0F : -0.0F;
  for (const Pattern& pattern : {Pattern::Unstructured(0.5), Pattern::PerRow(0.5)}) {
    SCOPED_TRACE(ToString(pattern));
    Mask warm(1, kCols);
    for (int64_t col = 0; col < kCols / 2; ++col) warm.Set(0, col, true);
    const Mask fixed(1, kCols);
    const EngineProblem problem = {.weights = weights.view(),
                                   .gram = gram.view(),
                                   .pattern = pattern,
                                   .saliency = saliency.view(),
                                   .warm = &warm,
                                   .fixed = &fixed};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* backend, testing::BackendOf(GetParam()));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const auto engine,
        backend->CreateEngine({.threads = 1,
                               .precision = testing::IsFloat32(GetParam()) ? Precision::kFloat32
                                                                           : Precision::kFloat64}));
    ASSERT_TRUE(engine->Load(problem).ok());
    // kPerRow and kUnstructured keep four: of equals the higher columns.
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine->Step({.count = 1}));
    EXPECT_EQ(stats.step_size, 1);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine->Round());
    for (int64_t col = 0; col < kCols; ++col) {
      EXPECT_EQ(rounded.mask.Get(0, col), col >= kCols / 2) << col;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, RoundTiesTest, ::testing::ValuesIn(testing::kAllEngines),
                         [](const auto& test) { return testing::NameOf(test.param); });

}  // namespace
}  // namespace sparsefw
