// SparseGPT against vectors of an independent program
// (tests/golden/make_golden.py): NumPy, float64, the published three
// factorisations and loops.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/src/parallel/parallel_context.h"
#include "core/src/sparsegpt/sparsegpt.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/solver.h"
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
using ::sparsefw::testing::StatusIs;

const json& LayerNamed(const json& name) {
  for (const char* list : {"layers", "sparsegpt_layers"}) {
    for (const json& layer : Golden().at(list)) {
      if (layer.at("name") == name) return layer;
    }
  }
  ADD_FAILURE() << "there is no layer " << name;
  return Golden().at("layers").at(0);
}

void ExpectMaskAndWeights(const Mask& mask, const Matrix<float>& weights, const json& golden) {
  EXPECT_EQ(RowsOf(mask), golden.at("mask").get<std::vector<std::string>>());
  const Matrix<double> expected = MatrixOf<double>(golden.at("weights"));
  for (int64_t i = 0; i < expected.size(); ++i) {
    // The last bit of float32, and what 13 digits leave of a sum that cancels.
    EXPECT_NEAR(static_cast<double>(weights.data()[i]), expected.data()[i],
                1e-7 * std::fabs(expected.data()[i]) + 1e-12)
        << i;
  }
}

class SparseGptGoldenTest : public ::testing::TestWithParam<size_t> {};

TEST_P(SparseGptGoldenTest, MaskWeightsDampingAndLosses) {
  const json& golden = Golden().at("sparsegpt").at(GetParam());
  const json& layer = LayerNamed(golden.at("layer"));
  const Matrix<float> weights = MatrixOf<float>(layer.at("weights"));
  const Matrix<double> gram = MatrixOf<double>(layer.at("gram"));
  const Problem problem = {weights.view(), gram.view(), PatternOf(golden.at("pattern")),
                           ConstMatrixView(), nullptr};
  const SolveOptions options = {
      .method = Method::kSparseGpt,
      .sparsegpt = {.damping = golden.at("damping"), .block = golden.at("block")}};
  if (layer.at("name") == "indefinite_1.5") {
    // Solve refuses this G; the damping that its factorisation needs is tested below Solve.
    EXPECT_THAT(Solve(problem, options, **FindBackend("cpu"), nullptr, nullptr),
                StatusIs(absl::StatusCode::kInvalidArgument, "GRAM_NOT_POSITIVE_DEFINITE"));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const PrunedWeights pruned,
        sparsegpt::Prune(problem, options.sparsegpt, ParallelContext(1, nullptr)));
    ExpectMaskAndWeights(pruned.mask, pruned.weights, golden);
    EXPECT_EQ(pruned.damping, golden.at("damping_used").get<double>());
    return;
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result,
                                Solve(problem, options, **FindBackend("cpu"), nullptr, nullptr));

  ExpectMaskAndWeights(result.mask, result.weights, golden);
  EXPECT_EQ(result.damping, golden.at("damping_used").get<double>());
  const double full_loss = golden.at("full_loss");
  const double tolerance = 1e-9 * std::max(1.0, std::fabs(full_loss));
  EXPECT_NEAR(result.full_loss, full_loss, tolerance);
  EXPECT_NEAR(result.warm_start_loss, golden.at("warm_loss"), tolerance);
  EXPECT_NEAR(result.final_loss, golden.at("mask_loss"), tolerance);
  // The loss is of weights rounded to float32, here and there.
  EXPECT_NEAR(result.reconstructed_loss, golden.at("weights_loss"), 1e3 * tolerance);
}

std::string NameOf(const ::testing::TestParamInfo<size_t>& parameter) {
  const json& golden = Golden().at("sparsegpt").at(parameter.param);
  std::string name = golden.at("layer").get<std::string>() + "_" +
                     ToString(PatternOf(golden.at("pattern"))) + "_block_" +
                     golden.at("block").dump() + "_damping_" + golden.at("damping").dump();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, SparseGptGoldenTest,
                         ::testing::Range(size_t{0}, Golden().at("sparsegpt").size()), NameOf);

}  // namespace
}  // namespace sparsefw
