// ALPS against vectors of an independent program (tests/golden/make_alps_golden.py):
// NumPy, float64, one eigendecomposition for every rho, as published.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/src/alps/alps.h"
#include "core/src/parallel/parallel_context.h"
#include "gtest/gtest.h"
#include "sparsefw/solver.h"
#include "tests/core/solver/golden_json.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"

namespace sparsefw {
namespace {

using ::nlohmann::json;
using ::sparsefw::testing::MatrixOf;
using ::sparsefw::testing::PatternOf;
using ::sparsefw::testing::RowsOf;

const json& Vectors() {
  static const json vectors = testing::ReadGolden("alps.json");
  return vectors;
}

const json& VectorsOfLayer(const json& name) {
  for (const json& layer : Vectors().at("layers")) {
    if (layer.at("name") == name) return layer;
  }
  ADD_FAILURE() << "there is no layer " << name;
  return Vectors().at("layers").at(0);
}

class AlpsGoldenTest : public ::testing::TestWithParam<size_t> {};

TEST_P(AlpsGoldenTest, MaskWeightsIterationsAndLoss) {
  const json& golden = Vectors().at("cases").at(GetParam());
  const json& layer = VectorsOfLayer(golden.at("layer"));
  const Matrix<float> weights = MatrixOf<float>(layer.at("weights"));
  const Matrix<double> gram = MatrixOf<double>(layer.at("gram"));
  const Problem problem = {weights.view(), gram.view(), PatternOf(golden.at("pattern")),
                           ConstMatrixView(), nullptr};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const alps::PrunedLayer pruned,
                                alps::Prune(problem, {}, ParallelContext(2, nullptr)));
  EXPECT_EQ(pruned.iterations, golden.at("iterations").get<int64_t>());
  EXPECT_EQ(RowsOf(pruned.mask), golden.at("mask").get<std::vector<std::string>>());
  const Matrix<double> expected = MatrixOf<double>(golden.at("weights"));
  for (int64_t i = 0; i < expected.size(); ++i) {
    // The last bit of float32, and what hundreds of float64 products leave.
    EXPECT_NEAR(static_cast<double>(pruned.weights.data()[i]), expected.data()[i],
                1e-7 * std::fabs(expected.data()[i]) + 1e-9)
        << i;
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SolveResult result,
      Solve(problem, {.method = Method::kAlps}, **FindBackend("cpu"), nullptr, nullptr));
  EXPECT_EQ(result.mask, pruned.mask);
  EXPECT_EQ(result.damping, 0.01);
  EXPECT_NEAR(result.reconstructed_loss, golden.at("loss").get<double>(),
              1e-6 * golden.at("loss").get<double>());
  EXPECT_EQ(result.relative_reduction, 1 - result.reconstructed_loss / result.warm_start_loss);
}

std::string NameOfCase(const ::testing::TestParamInfo<size_t>& parameter) {
  const json& golden = Vectors().at("cases").at(parameter.param);
  return golden.at("layer").get<std::string>() + "_" +
         golden.at("pattern").at("kind").get<std::string>();
}

INSTANTIATE_TEST_SUITE_P(All, AlpsGoldenTest,
                         ::testing::Range(size_t{0}, Vectors().at("cases").size()), NameOfCase);

}  // namespace
}  // namespace sparsefw
