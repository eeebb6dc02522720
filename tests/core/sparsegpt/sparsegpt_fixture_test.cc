// SparseGPT on layers of a real model: what plain loops give, and better than Wanda.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "sparsefw/safetensors.h"
#include "sparsefw/solver.h"
#include "tests/core/sparsegpt/plain_sparsegpt.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::PlainResult;
using ::sparsefw::testing::PlainSparseGpt;
using ::sparsefw::testing::ToDouble;
using ::sparsefw::testing::ToFloat32;

class SparseGptFixtureTest : public ::testing::TestWithParam<std::tuple<std::string, Pattern>> {
 protected:
  void SetUp() override {
    const std::string& name = std::get<0>(GetParam());
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        file_, SafetensorsFile::Open(std::string(SPARSEFW_SOURCE_DIR) + "/tests/fixtures/minilm/" +
                                     name + ".safetensors"));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto* weight, file_->Find(name + ".weight"));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto* gram, file_->Find("gram"));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(problem_.weights, weight->AsMatrix());
    SPARSEFW_ASSERT_OK_AND_ASSIGN(problem_.gram, gram->AsMatrix());
    problem_.pattern = std::get<1>(GetParam());
  }

  absl::StatusOr<SolveResult> RunSparseGpt() const {
    return Solve(problem_, {.method = Method::kSparseGpt}, **FindBackend("cpu"), nullptr, nullptr);
  }

  std::shared_ptr<const SafetensorsFile> file_;
  Problem problem_;
};

// 48 rows, since the plain loops are slow; as F32, since rounding to F16 would hide differences.
TEST_P(SparseGptFixtureTest, IsWhatPlainLoopsGive) {
  const Matrix<float> weights = ToFloat32(problem_.weights.Rows(0, 48));
  problem_.weights = weights.view();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, RunSparseGpt());
  const PlainResult plain = PlainSparseGpt(ToDouble(problem_.weights), ToDouble(problem_.gram),
                                           problem_.pattern, 0.01, 128);
  EXPECT_EQ(result.damping, plain.damping);
  for (int64_t row = 0; row < result.mask.rows(); ++row) {
    for (int64_t col = 0; col < result.mask.cols(); ++col) {
      const auto r = static_cast<size_t>(row);
      const auto c = static_cast<size_t>(col);
      ASSERT_EQ(result.mask.Get(row, col), plain.keep[r][c]) << row << ", " << col;
      ASSERT_NEAR(static_cast<double>(result.weights(row, col)), plain.weights[r][c],
                  1e-7 * std::fabs(plain.weights[r][c]) + 1e-9)
          << row << ", " << col;
    }
  }
}

TEST_P(SparseGptFixtureTest, LosesLessThanWanda) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, RunSparseGpt());
  RecordProperty("relative_reduction", std::to_string(result.relative_reduction));
  EXPECT_EQ(result.damping, 0.01);
  EXPECT_LT(result.reconstructed_loss, result.final_loss);
  EXPECT_GT(result.relative_reduction, 0.2);
}

INSTANTIATE_TEST_SUITE_P(
    MiniLm, SparseGptFixtureTest,
    ::testing::Combine(::testing::Values("encoder.layer.0.attention.self.query",
                                         "encoder.layer.2.intermediate.dense",
                                         "encoder.layer.5.attention.output.dense"),
                       ::testing::Values(Pattern::Unstructured(0.6), Pattern::PerRow(0.6),
                                         Pattern::KeepOfGroup(2, 4))),
    [](const auto& test) {
      std::string name = std::get<0>(test.param) + "_" + ToString(std::get<1>(test.param));
      std::replace_if(
          name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
      return name;
    });

}  // namespace
}  // namespace sparsefw
