// Saliencies, masks and the reference engine against vectors of an independent
// program (tests/golden/make_golden.py): NumPy, float64, no shared code.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/src/reference/reference_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "sparsefw/saliency.h"
#include "tests/core/solver/golden_json.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"

namespace sparsefw {
namespace {

using ::nlohmann::json;
using ::sparsefw::testing::Golden;
using ::sparsefw::testing::MatrixOf;
using ::sparsefw::testing::PatternOf;
using ::sparsefw::testing::RowsOf;

constexpr double kTolerance = 1e-9;

const json& LayerNamed(const json& name) {
  const json& layers = Golden().at("layers");
  return *std::find_if(layers.begin(), layers.end(),
                       [&](const json& layer) { return layer.at("name") == name; });
}

SaliencyOptions OptionsOf(const json& method) {
  if (method.at("name") == "magnitude") return {.method = SaliencyMethod::kMagnitude};
  if (method.at("name") == "wanda") return {.method = SaliencyMethod::kWanda};
  return {.method = SaliencyMethod::kRia, .ria_exponent = method.at("exponent")};
}

absl::StatusOr<Matrix<float>> SaliencyOf(const json& layer, const json& method) {
  const Matrix<float> weights = MatrixOf<float>(layer.at("weights"));
  const Matrix<double> gram = MatrixOf<double>(layer.at("gram"));
  std::vector<double> diagonal;
  for (int64_t i = 0; i < gram.rows(); ++i) diagonal.push_back(gram(i, i));
  return ComputeSaliency(weights.view(), diagonal, OptionsOf(method));
}

TEST(GoldenSaliencyTest, ScoresAreTheFloat64FormulaRoundedToFloat) {
  for (const json& layer : Golden().at("layers")) {
    for (const json& golden : layer.at("saliencies")) {
      SCOPED_TRACE(layer.at("name").dump() + golden.at("method").dump());
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> scores,
                                    SaliencyOf(layer, golden.at("method")));
      const Matrix<double> expected = MatrixOf<double>(golden.at("scores"));
      for (int64_t i = 0; i < scores.size(); ++i) {
        // The file has 13 digits, enough to name one float unless it is all but a midpoint.
        EXPECT_FLOAT_EQ(scores.data()[i], static_cast<float>(expected.data()[i])) << i;
      }
    }
  }
}

class GoldenTest : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    RecordProperty("case", golden_.dump().substr(0, 200));
    const json& layer = LayerNamed(golden_.at("layer"));
    weights_ = MatrixOf<float>(layer.at("weights"));
    gram_ = MatrixOf<double>(layer.at("gram"));
    pattern_ = PatternOf(golden_.at("pattern"));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(saliency_, SaliencyOf(layer, golden_.at("method")));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(warm_, TopScores(saliency_.view(), pattern_));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(fixed_,
                                  FixedSet(saliency_.view(), warm_, pattern_, golden_.at("alpha")));
  }

  std::vector<std::string> Rows(const char* name) const {
    return golden_.at(name).get<std::vector<std::string>>();
  }

  // Losses and gaps are sums of terms up to the loss of pruning everything.
  void ExpectSame(double actual, const json& expected, const char* what) const {
    const double value = expected.get<double>();
    const double scale = std::max(std::fabs(value), 1e-3 * golden_.at("full_loss").get<double>());
    EXPECT_NEAR(actual, value, kTolerance * scale) << what;
  }

  void ExpectReport(Engine& engine, const json& report) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine.Round());
    EXPECT_EQ(RowsOf(rounded.mask), report.at("mask").get<std::vector<std::string>>());
    EXPECT_NEAR(rounded.threshold_residual, report.at("residual").get<double>(), kTolerance);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double loss, engine.Loss(rounded.mask));
    ExpectSame(loss, report.at("loss"), "rounded loss");
  }

  const json& golden_ = Golden().at("cases").at(GetParam());
  Matrix<float> weights_;
  Matrix<double> gram_;
  Pattern pattern_;
  Matrix<float> saliency_;
  Mask warm_;
  Mask fixed_;
};

TEST_P(GoldenTest, WarmStartAndFixedSetAreExact) {
  EXPECT_EQ(RowsOf(warm_), Rows("warm"));
  EXPECT_EQ(RowsOf(fixed_), Rows("fixed"));
}

TEST_P(GoldenTest, ReferenceEngineFollowsEveryStep) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine,
                                ReferenceBackend().CreateEngine({}));
  SPARSEFW_ASSERT_OK(engine->Load({.weights = weights_.view(),
                                   .gram = gram_.view(),
                                   .pattern = pattern_,
                                   .saliency = saliency_.view(),
                                   .warm = &warm_,
                                   .fixed = &fixed_}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const double full_loss,
                                engine->Loss(Mask(weights_.rows(), weights_.cols())));
  ExpectSame(full_loss, golden_.at("full_loss"), "full loss");
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const double warm_loss, engine->Loss(warm_));
  ExpectSame(warm_loss, golden_.at("warm_loss"), "warm loss");

  const StepRule rule =
      golden_.at("step_rule") == "open_loop" ? StepRule::kOpenLoop : StepRule::kLineSearch;
  const json& trace = golden_.at("trace");
  auto report = golden_.at("reports").begin();
  for (int64_t t = 0; t < std::ssize(trace); ++t) {
    SCOPED_TRACE(t);
    const json& expected = trace.at(static_cast<size_t>(t));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats,
                                  engine->Step({.count = t == 0 ? 0 : 1, .rule = rule}));
    EXPECT_EQ(stats.iteration, t);
    ExpectSame(stats.relaxed_loss, expected.at("loss"), "relaxed loss");
    ExpectSame(stats.gap, expected.at("gap"), "gap");
    ExpectSame(stats.lower_bound, expected.at("lower_bound"), "lower bound");
    EXPECT_NEAR(stats.step_size, expected.at("step_size").get<double>(), kTolerance);
    if (report != golden_.at("reports").end() && report->at("iteration") == t) {
      ExpectReport(*engine, *report++);
    }
  }
  EXPECT_EQ(report, golden_.at("reports").end());
}

std::string NameOf(const ::testing::TestParamInfo<size_t>& parameter) {
  const json& golden = Golden().at("cases").at(parameter.param);
  std::string name = golden.at("layer").get<std::string>() + "_" +
                     ToString(PatternOf(golden.at("pattern"))) + "_" +
                     golden.at("method").at("name").get<std::string>() + "_" +
                     golden.at("step_rule").get<std::string>() + "_" + golden.at("alpha").dump() +
                     "_" + std::to_string(parameter.param);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, ::testing::Range(size_t{0}, Golden().at("cases").size()),
                         NameOf);

}  // namespace
}  // namespace sparsefw
