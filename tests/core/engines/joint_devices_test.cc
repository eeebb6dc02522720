// The joint search of devices against that of the CPU engine in the same precision.
#include <algorithm>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/saliency.h"
#include "tests/core/engines/joint_search.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::EngineKind;
using ::sparsefw::testing::ExpectFits;
using ::sparsefw::testing::IsFloat32;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::Search;
using ::sparsefw::testing::Searched;
using ::sparsefw::testing::StartingPoint;

// Widths that are no whole panel, and windows of several panels.
struct Window {
  std::string name;
  Pattern pattern;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t tokens = 1 << 20;  // fewer than inputs: G is singular
  int64_t dead = 0;
  double alpha = 0;
  JointOptions options = {};
};
void PrintTo(const Window& window, std::ostream* out) { *out << window.name; }

std::vector<Window> Windows() {
  const auto narrow = [](const Pattern& pattern) { return JointExcluded(pattern, 0.9); };
  const Pattern per_row = Pattern::PerRow(0.6);
  const Pattern whole = Pattern::Unstructured(0.6);
  const Pattern two_four = Pattern::KeepOfGroup(2, 4);
  const Pattern four_eight = Pattern::KeepOfGroup(4, 8);
  return {
      {.name = "per_row_narrow",
       .pattern = per_row,
       .rows = 6,
       .cols = 420,
       .alpha = 0.9,
       .options = {.damping = 0.001, .excluded = narrow(per_row)}},
      {.name = "per_row_wide",
       .pattern = per_row,
       .rows = 5,
       .cols = 230,
       .alpha = 0.4,
       .options = {.damping = 0.001, .excluded = 0.25}},
      {.name = "per_row_all",
       .pattern = per_row,
       .rows = 4,
       .cols = 170,
       .options = {.damping = 0, .excluded = 0}},
      {.name = "unstructured_narrow",
       .pattern = whole,
       .rows = 8,
       .cols = 300,
       .alpha = 0.9,
       .options = {.damping = 0.03, .excluded = narrow(whole)}},
      {.name = "unstructured_wide",
       .pattern = whole,
       .rows = 7,
       .cols = 150,
       .alpha = 0.3,
       .options = {.damping = 0.001, .excluded = 0.25}},
      {.name = "two_four",
       .pattern = two_four,
       .rows = 5,
       .cols = 180,
       .alpha = 0.4,
       .options = {.damping = 0.001, .excluded = 0.25}},
      {.name = "four_eight",
       .pattern = four_eight,
       .rows = 5,
       .cols = 168,
       .alpha = 0.4,
       .options = {.damping = 0.001, .excluded = 0.25}},
      {.name = "four_eight_all",
       .pattern = four_eight,
       .rows = 4,
       .cols = 136,
       .options = {.damping = 0, .excluded = 0}},
      {.name = "few_tokens",
       .pattern = per_row,
       .rows = 5,
       .cols = 160,
       .tokens = 90,
       .dead = 9,
       .alpha = 0.5,
       .options = {.damping = 0.01, .excluded = 0.25}},
      {.name = "few_tokens_two_four",
       .pattern = two_four,
       .rows = 5,
       .cols = 132,
       .tokens = 100,
       .dead = 5,
       .alpha = 0,
       .options = {.damping = 0.01, .excluded = 0}},
  };
}

class JointDevicesTest : public ::testing::TestWithParam<std::tuple<EngineKind, Window>> {};

INSTANTIATE_TEST_SUITE_P(Windows, JointDevicesTest,
                         ::testing::Combine(::testing::Values(EngineKind::kCudaFloat64,
                                                              EngineKind::kCudaFloat32),
                                            ::testing::ValuesIn(Windows())),
                         [](const auto& test) {
                           return testing::NameOf(std::get<0>(test.param)) + "_" +
                                  std::get<1>(test.param).name;
                         });

TEST_P(JointDevicesTest, LosesNoMoreThanOnTheCpu) {
  const auto& [kind, window] = GetParam();
  SPARSEFW_NEED_DEVICE(kind);
  const RandomLayer layer = MakeRandomLayer({.rows = window.rows,
                                             .cols = window.cols,
                                             .tokens = std::min(window.tokens, 2 * window.cols),
                                             .dead_columns = window.dead,
                                             .seed = 11});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), window.pattern, {}, window.alpha));
  const EngineKind cpu = IsFloat32(kind) ? EngineKind::kCpuFloat32 : EngineKind::kCpuFloat64;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched expected,
                                Search(cpu, start, {.options = window.options}));
  // From the same weights: they choose the window.
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const Searched found,
      Search(kind, start, {.options = window.options, .weights = &expected.start_weights}));
  ExpectFits(start, found.result);
  EXPECT_TRUE(found.result.converged);
  EXPECT_GT(expected.result.exchanges, 3);
  EXPECT_LE(found.result.loss, found.start_loss);
  EXPECT_LE(found.result.loss, expected.result.loss * (1 + 1e-6));
  for (int64_t row = 0; row < window.rows; ++row) {
    EXPECT_EQ(found.result.mask.CountKeptInRow(row), start.warm.CountKeptInRow(row));
  }
  // In float64 no two gains are near enough to each other for their order to be another.
  if (!IsFloat32(kind)) {
    EXPECT_EQ(found.result.mask, expected.result.mask);
    EXPECT_EQ(found.result.exchanges, expected.result.exchanges);
  }
}

// By the scores of the weights that the search begins with, equal ones among them.
class JointFixedSetTest : public ::testing::TestWithParam<std::tuple<EngineKind, Pattern>> {};

INSTANTIATE_TEST_SUITE_P(
    Patterns, JointFixedSetTest,
    ::testing::Combine(::testing::Values(EngineKind::kCudaFloat64, EngineKind::kCudaFloat32),
                       ::testing::Values(Pattern::PerRow(0.6), Pattern::Unstructured(0.6),
                                         Pattern::KeepOfGroup(2, 4))),
    [](const auto& test) {
      return testing::NameOf(std::get<0>(test.param)) + "_" +
             testing::NameOf(std::get<1>(test.param));
    });

TEST_P(JointFixedSetTest, IsThatOfTheHost) {
  const auto& [kind, pattern] = GetParam();
  SPARSEFW_NEED_DEVICE(kind);
  constexpr double kAlpha = 0.6;
  const RandomLayer layer = MakeRandomLayer({.rows = 5, .cols = 76, .seed = 12});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, kAlpha));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, testing::LoadedEngine(kind, start));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(Matrix<float> weights, engine->Reconstruct(start.warm, {}));
  std::vector<double> diagonal;
  for (int64_t j = 0; j < layer.gram.cols(); ++j) diagonal.push_back(layer.gram(j, j));
  for (int64_t row = 0; row < weights.rows(); ++row) {
    for (int64_t j = 2; j < weights.cols(); j += 3)
      weights(row, j) = start.warm.Get(row, j) ? 0.5F : 0;
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> scores,
                                ComputeSaliency(weights.view(), diagonal, {}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(start.fixed, FixedSet(scores.view(), start.warm, pattern, kAlpha));
  const JointOptions options = {.damping = 0.001, .excluded = 0.25};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched given,
                                Search(kind, start, {.options = options, .weights = &weights}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const Searched chosen,
      Search(kind, start, {.options = options, .weights = &weights, .alpha = kAlpha}));
  ExpectFits(start, chosen.result);
  EXPECT_EQ(chosen.result.mask, given.result.mask);
  EXPECT_EQ(chosen.result.loss, given.result.loss);
  EXPECT_EQ(chosen.result.exchanges, given.result.exchanges);
  EXPECT_GT(chosen.result.exchanges, 3);
}

}  // namespace
}  // namespace sparsefw
