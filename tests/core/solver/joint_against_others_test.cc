// The joint search is below SparseGPT, ALPS and every method with its weights solved, whatever it
// starts from: on all layers of the fixture and on synthetic ones, for every pattern.
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/joint.h"
#include "sparsefw/options.h"
#include "sparsefw/problem.h"
#include "sparsefw/safetensors.h"
#include "sparsefw/solver.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::RandomLayer;

constexpr int64_t kRows = 48;  // enough to tell

double LossOfWeights(const Problem& problem, const SolveOptions& options) {
  const absl::StatusOr<SolveResult> result =
      Solve(problem, options, **FindBackend("cpu"), nullptr, nullptr);
  if (!result.ok() || result->weights.size() == 0) {
    ADD_FAILURE() << result.status();
    return 0;
  }
  return result->reconstructed_loss;
}

void ExpectBelowAllOthers(const Problem& problem) {
  const double alpha = JointAlpha(problem.pattern);
  const JointOptions window = {.excluded = JointExcluded(problem.pattern, alpha)};
  const std::vector<SolveOptions> searches = {
      {.method = Method::kWanda, .alpha = alpha, .joint = true, .joint_options = window},
      {.alpha = alpha, .iterations = 50, .joint = true, .joint_options = window}};
  double worst = 0;
  for (const SolveOptions& options : searches) {
    worst = std::max(worst, LossOfWeights(problem, options));
  }
  // The losses are of G with its shrinkage.
  const SolveOptions best = ResolveOptions({.preset = Preset::kBest}, problem.pattern);
  EXPECT_GT(best.shrinkage, 0);
  EXPECT_LT(LossOfWeights(problem, best), LossOfWeights(problem, {.method = Method::kAlps,
                                                                  .shrinkage = best.shrinkage,
                                                                  .reconstruct = true}));
  for (const Method method : {Method::kMagnitude, Method::kWanda, Method::kRia, Method::kSparseGpt,
                              Method::kAlps, Method::kSparseFw}) {
    for (const bool swaps : {false, true}) {
      if (swaps && HasOwnWeights(method)) continue;
      const SolveOptions options = {.method = method,
                                    .alpha = 0.5,
                                    .iterations = 50,
                                    .step_rule = StepRule::kLineSearch,
                                    .swaps = swaps,
                                    .reconstruct = true};
      EXPECT_LT(worst, LossOfWeights(problem, options))
          << ToString(problem.pattern) << " method " << static_cast<int>(method) << " " << swaps;
    }
  }
}

const std::vector<Pattern>& Patterns() {
  static const std::vector<Pattern> patterns = {Pattern::PerRow(0.6), Pattern::Unstructured(0.6),
                                                Pattern::KeepOfGroup(2, 4)};
  return patterns;
}

TEST(JointAgainstOthersTest, OnSyntheticLayers) {
  for (const double correlation : {0.5, 0.9}) {
    const RandomLayer layer =
        MakeRandomLayer({.rows = kRows, .cols = 128, .correlation = correlation, .seed = 8});
    for (const Pattern& pattern : Patterns()) {
      ExpectBelowAllOthers(
          {layer.weights.view(), layer.gram.view(), pattern, ConstMatrixView(), nullptr});
    }
  }
}

class JointAgainstOthersOnFixtureTest : public ::testing::TestWithParam<std::string> {};

TEST_P(JointAgainstOthersOnFixtureTest, EveryPattern) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const auto file, SafetensorsFile::Open(SPARSEFW_SOURCE_DIR "/tests/fixtures/minilm/encoder." +
                                             GetParam() + ".safetensors"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto* weight,
                                file->Find("encoder." + GetParam() + ".weight"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const ConstMatrixView weights, weight->AsMatrix());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto* inputs, file->Find("gram"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const ConstMatrixView gram, inputs->AsMatrix());
  for (const Pattern& pattern : Patterns()) {
    ExpectBelowAllOthers({weights.Rows(0, std::min(weights.rows(), kRows)), gram, pattern,
                          ConstMatrixView(), nullptr});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layers, JointAgainstOthersOnFixtureTest,
    ::testing::Values("layer.0.attention.self.query", "layer.2.intermediate.dense",
                      "layer.5.attention.output.dense"),
    [](const auto& test) {
      std::string name = test.param;
      std::replace_if(
          name.begin(), name.end(),
          [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
      return name;
    });

}  // namespace
}  // namespace sparsefw
