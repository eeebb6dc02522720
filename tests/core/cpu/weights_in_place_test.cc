// Weights that are read where the caller has them: the same iterates as with a copy.
#include <cmath>
#include <tuple>

#include "core/src/linalg/scaled_layer.h"
#include "gtest/gtest.h"
#include "sparsefw/backend.h"
#include "sparsefw/saliency.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::LoadedEngine;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StartingPoint;
using ::sparsefw::testing::ToFloat32;
using ::sparsefw::testing::TypedMatrix;

// In float32 rows of its own, one value off any alignment; what lies between them is NaN.
class UnalignedRows {
 public:
  explicit UnalignedRows(const Matrix<float>& values)
      : rows_(values.rows()), cols_(values.cols()), buffer_(rows_, cols_ + 1) {
    for (float& value : buffer_.span()) value = NAN;
    for (int64_t row = 0; row < rows_; ++row) {
      std::copy_n(values.row(row), cols_, buffer_.row(row) + 1);
    }
  }
  ConstMatrixView view() const {
    return ConstMatrixView(buffer_.data() + 1, DType::kF32, rows_, cols_, cols_ + 1);
  }

 private:
  int64_t rows_;
  int64_t cols_;
  Matrix<float> buffer_;
};

struct Outcome {
  StepStats stats;
  RoundedMask rounded;
};

// Iterations of every kind: on all columns, screened, with a dense product.
absl::StatusOr<Outcome> Iterate(ConstMatrixView weights, ConstMatrixView gram,
                                const Pattern& pattern, StepRule rule) {
  SPARSEFW_ASSIGN_OR_RETURN(const Backend* cpu, FindBackend("cpu"));
  SPARSEFW_ASSIGN_OR_RETURN(const StartingPoint start,
                            MakeStartingPoint(weights, gram, pattern, {}, 0.8));
  SPARSEFW_ASSIGN_OR_RETURN(const auto engine,
                            LoadedEngine(*cpu, start,
                                         {.threads = 2,
                                          .precision = Precision::kFloat32,
                                          .tuning = {.screening = Screening::kAlways}}));
  Outcome outcome;
  SPARSEFW_ASSIGN_OR_RETURN(outcome.stats,
                            engine->Step({.count = 250, .rule = rule, .measure_drift = true}));
  SPARSEFW_ASSIGN_OR_RETURN(outcome.rounded, engine->Round());
  return outcome;
}

class WeightsInPlaceTest : public ::testing::TestWithParam<std::tuple<Pattern, StepRule>> {};

// BF16 is always copied; its values are float32's, too.
TEST_P(WeightsInPlaceTest, SameBitsAsACopy) {
  const auto& [pattern, rule] = GetParam();
  const RandomLayer layer = MakeRandomLayer({.rows = 48, .cols = 128, .tokens = 300, .seed = 11});
  const TypedMatrix narrow(layer.weights.view(), DType::kBF16);
  const UnalignedRows wide(ToFloat32(narrow.view()));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Scale scale,
                                ChooseScale(wide.view(), layer.gram.view(), ParallelContext(1)));
  ASSERT_EQ(ScaleInPlace(wide.view(), scale).weights_exponent, 0) << "it would be copied";
  ASSERT_NE(ScaleInPlace(narrow.view(), scale).weights_exponent, 0) << "it would not be copied";
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Outcome copied,
                                Iterate(narrow.view(), layer.gram.view(), pattern, rule));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Outcome in_place,
                                Iterate(wide.view(), layer.gram.view(), pattern, rule));
  EXPECT_EQ(in_place.rounded.mask, copied.rounded.mask);
  EXPECT_EQ(in_place.rounded.threshold_residual, copied.rounded.threshold_residual);
  EXPECT_EQ(in_place.stats.relaxed_loss, copied.stats.relaxed_loss);
  EXPECT_EQ(in_place.stats.gap, copied.stats.gap);
  EXPECT_EQ(in_place.stats.toggled, copied.stats.toggled);
  EXPECT_EQ(in_place.stats.drift, copied.stats.drift);
  EXPECT_EQ(in_place.stats.engine.screening.iterations, copied.stats.engine.screening.iterations);
  EXPECT_GT(in_place.stats.engine.screening.iterations, 0) << "no screened iteration was compared";
}

INSTANTIATE_TEST_SUITE_P(
    All, WeightsInPlaceTest,
    ::testing::Combine(::testing::Values(Pattern::Unstructured(0.6), Pattern::PerRow(0.6),
                                         Pattern::KeepOfGroup(2, 4)),
                       ::testing::Values(StepRule::kOpenLoop, StepRule::kLineSearch)));

// Powers of two change no bit but the exponent's, in range or out of it.
TEST(WeightsInPlaceTest, TheSameWhereWeightsAreTooSmallOrTooLarge) {
  const RandomLayer layer = MakeRandomLayer({.rows = 40, .cols = 64, .tokens = 200, .seed = 12});
  const auto iterate = [&](int exponent, bool in_place) -> absl::StatusOr<Outcome> {
    Matrix<float> weights(40, 64);
    for (int64_t i = 0; i < weights.size(); ++i) {
      weights.data()[i] = std::ldexp(layer.weights.data()[i], exponent);
    }
    SPARSEFW_ASSIGN_OR_RETURN(const Scale scale,
                              ChooseScale(weights.view(), layer.gram.view(), ParallelContext(1)));
    EXPECT_EQ(ScaleInPlace(weights.view(), scale).weights_exponent == 0, in_place) << exponent;
    return Iterate(weights.view(), layer.gram.view(), Pattern::Unstructured(0.5),
                   StepRule::kOpenLoop);
  };
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Outcome base, iterate(0, true));
  for (const int exponent : {-40, -30, 40, 60}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Outcome other, iterate(exponent, false));
    EXPECT_EQ(other.rounded.mask, base.rounded.mask) << exponent;
    EXPECT_EQ(other.stats.relaxed_loss, std::ldexp(base.stats.relaxed_loss, 2 * exponent));
  }
}

TEST(WeightsInPlaceTest, BothEndsOfTheRange) {
  const RandomLayer layer = MakeRandomLayer({.rows = 4, .cols = 64});
  const auto in_place = [&](float largest) {
    Matrix<float> weights(4, 64);
    weights(1, 3) = largest;
    const absl::StatusOr<Scale> scale =
        ChooseScale(weights.view(), layer.gram.view(), ParallelContext(1));
    return scale.ok() && ScaleInPlace(weights.view(), *scale).weights_exponent == 0;
  };
  EXPECT_TRUE(in_place(0x1p-8F));
  EXPECT_FALSE(in_place(std::nextafter(0x1p-8F, 0.0F)));
  EXPECT_TRUE(in_place(std::nextafter(0x1p25F, 0.0F)));
  EXPECT_FALSE(in_place(0x1p25F));
}

// G would need a factor that is infinite as a double.
TEST(WeightsInPlaceTest, ACopyWhereGIsTiny) {
  Matrix<float> weights(4, 64);
  weights(1, 3) = 0x1p-4F;
  Matrix<double> gram(64, 64);
  for (int64_t j = 0; j < 64; ++j) gram(j, j) = 0x1p-925;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Scale scale,
                                ChooseScale(weights.view(), gram.view(), ParallelContext(1)));
  const Scale chosen = ScaleInPlace(weights.view(), scale);
  EXPECT_TRUE(std::isfinite(chosen.gram_factor()));
  EXPECT_EQ(chosen.weights_exponent, scale.weights_exponent);
}

TEST(LoadPanelsTest, RefersToWhatNeedsNoChange) {
  const RandomLayer layer = MakeRandomLayer({.rows = 3, .cols = 64});
  const RandomLayer padded = MakeRandomLayer({.rows = 3, .cols = 63});
  const ParallelContext context(1);
  const auto load = [&](const RandomLayer& from, int exponent) {
    return LoadPanels<float>(from.weights.view(), from.gram.view(), {exponent, 0}, context);
  };
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const PanelLayer<float> same, load(layer, 0));
  EXPECT_EQ(same.weights.row(2), layer.weights.row(2));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const PanelLayer<float> scaled, load(layer, 1));
  EXPECT_NE(scaled.weights.row(2), layer.weights.row(2));
  EXPECT_EQ(scaled.weights(2, 5), 2 * layer.weights(2, 5));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const PanelLayer<float> with_padding, load(padded, 0));
  EXPECT_NE(with_padding.weights.row(2), padded.weights.row(2));
  EXPECT_EQ(with_padding.weights(2, 62), padded.weights(2, 62));
  EXPECT_EQ(with_padding.weights(2, 63), 0);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const PanelLayer<double> wide,
      LoadPanels<double>(layer.weights.view(), layer.gram.view(), {0, 0}, context));
  EXPECT_EQ(wide.weights(2, 5), static_cast<double>(layer.weights(2, 5)));
}

}  // namespace
}  // namespace sparsefw
