// SparseGPT and ALPS on every backend that has them, against the float64 result of the CPU.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>

#include "core/src/alps/alps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/problem.h"
#include "sparsefw/reason.h"
#include "sparsefw/solver.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::BackendOf;
using ::sparsefw::testing::EngineKind;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::NameOf;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StatusIs;
using ::sparsefw::testing::TypedMatrix;

constexpr EngineKind kDevice = EngineKind::kCudaFloat64;

absl::StatusOr<SolveResult> SolveOn(const Problem& problem, Method method, const char* backend,
                                    const SparseGptOptions& sparsegpt = {},
                                    const StopSignal* stop = nullptr) {
  SPARSEFW_ASSIGN_OR_RETURN(const Backend* found, FindBackend(backend));
  return Solve(problem, {.method = method, .sparsegpt = sparsegpt}, *found, nullptr, stop);
}

struct PruneShape {
  int64_t rows;
  int64_t cols;
  int64_t block;
};

// Columns that are no whole tiles of 128 or words, blocks wider and narrower than a tile.
using PruneCase = std::tuple<Method, Pattern, PruneShape>;
class PruneTest : public ::testing::TestWithParam<PruneCase> {
 protected:
  void SetUp() override {
    SPARSEFW_NEED_DEVICE(kDevice);
    SPARSEFW_ASSERT_OK((*BackendOf(kDevice))->CheckPrune());
  }
};

INSTANTIATE_TEST_SUITE_P(
    cuda, PruneTest,
    ::testing::Combine(::testing::Values(Method::kSparseGpt, Method::kAlps),
                       ::testing::Values(Pattern::Unstructured(0.6), Pattern::Unstructured(0.29),
                                         Pattern::PerRow(0.5), Pattern::PerRow(0),
                                         Pattern::KeepOfGroup(2, 4), Pattern::KeepOfGroup(5, 12),
                                         Pattern::KeepOfGroup(60, 156)),
                       ::testing::Values(PruneShape{40, 312, 128}, PruneShape{7, 156, 48},
                                         PruneShape{33, 156, 1000})),
    [](const auto& test) {
      const PruneShape& shape = std::get<2>(test.param);
      return (std::get<0>(test.param) == Method::kAlps ? "alps_" : "sparsegpt_") +
             NameOf(std::get<1>(test.param)) + "_" + std::to_string(shape.rows) + "x" +
             std::to_string(shape.cols) + "_block" + std::to_string(shape.block);
    });

TEST_P(PruneTest, IsWhatTheCpuGives) {
  const auto& [method, pattern, shape] = GetParam();
  const RandomLayer layer =
      MakeRandomLayer({.rows = shape.rows, .cols = shape.cols, .large_columns = 2});
  const Problem problem = {layer.weights.view(), layer.gram.view(), pattern, ConstMatrixView(),
                           nullptr};
  const SparseGptOptions options = {.block = shape.block};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult cpu, SolveOn(problem, method, "cpu", options));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult device,
                                SolveOn(problem, method, "cuda", options));
  SPARSEFW_EXPECT_OK(ValidateMaskCounts(device.mask, pattern, "result"));
  EXPECT_EQ(device.kept_count, cpu.kept_count);
  EXPECT_EQ(device.damping, cpu.damping);
  EXPECT_NEAR(device.final_loss, cpu.final_loss, 1e-6 * cpu.final_loss);
  EXPECT_NEAR(device.reconstructed_loss, cpu.reconstructed_loss, 1e-6 * cpu.reconstructed_loss);
  ASSERT_EQ(device.mask, cpu.mask);  // no score of these layers is as near to another as rounding
  double largest = 0;
  for (int64_t i = 0; i < cpu.weights.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(cpu.weights.data()[i])));
  }
  for (int64_t i = 0; i < cpu.weights.size(); ++i) {
    const auto expected = static_cast<double>(cpu.weights.data()[i]);
    ASSERT_NEAR(static_cast<double>(device.weights.data()[i]), expected, 1e-6 * largest) << i;
  }
}

class PruneOnDeviceTest : public ::testing::TestWithParam<Method> {
 protected:
  void SetUp() override {
    SPARSEFW_NEED_DEVICE(kDevice);
    SPARSEFW_ASSERT_OK((*BackendOf(kDevice))->CheckPrune());
  }
};
INSTANTIATE_TEST_SUITE_P(cuda, PruneOnDeviceTest,
                         ::testing::Values(Method::kSparseGpt, Method::kAlps),
                         [](const auto& test) {
                           // "iterations": long under a sanitizer (gpu_check/gtests.py).
                           return test.param == Method::kAlps ? "alps_iterations" : "sparsegpt";
                         });

TEST_P(PruneOnDeviceTest, GivesTheSameBitsAgain) {
  const RandomLayer layer = MakeRandomLayer({.rows = 24, .cols = 160, .seed = 5});
  for (const Pattern& pattern :
       {Pattern::Unstructured(0.5), Pattern::PerRow(0.5), Pattern::KeepOfGroup(2, 4)}) {
    const Problem problem = {layer.weights.view(), layer.gram.view(), pattern, ConstMatrixView(),
                             nullptr};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult first, SolveOn(problem, GetParam(), "cuda"));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult second, SolveOn(problem, GetParam(), "cuda"));
    EXPECT_EQ(first.mask, second.mask);
    EXPECT_EQ(first.reconstructed_loss, second.reconstructed_loss);
    EXPECT_TRUE(std::equal(first.weights.data(), first.weights.data() + first.weights.size(),
                           second.weights.data()));
  }
}

// Equal weights on an uncorrelated Gram matrix have equal scores: the lower index goes first. The
// scores of ALPS go through a factorisation, whose rounding is each library's own: what it decides
// among equals is not the mask but the loss.
TEST_P(PruneOnDeviceTest, TiesAreBrokenAsOnTheCpu) {
  Matrix<float> weights(12, 96);
  Matrix<float> gram(96, 96);
  for (int64_t i = 0; i < weights.size(); ++i) weights.data()[i] = i % 5 == 0 ? 0.0F : 1.0F;
  for (int64_t i = 0; i < 96; ++i) gram(i, i) = 1;
  for (const Pattern& pattern : {Pattern::Unstructured(0.6), Pattern::PerRow(0.9),
                                 Pattern::KeepOfGroup(2, 4), Pattern::KeepOfGroup(90, 96)}) {
    SCOPED_TRACE(ToString(pattern));
    const Problem problem = {weights.view(), gram.view(), pattern, ConstMatrixView(), nullptr};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult cpu, SolveOn(problem, GetParam(), "cpu"));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult device, SolveOn(problem, GetParam(), "cuda"));
    SPARSEFW_EXPECT_OK(ValidateMaskCounts(device.mask, pattern, "result"));
    EXPECT_NEAR(device.reconstructed_loss, cpu.reconstructed_loss, 1e-6 * cpu.reconstructed_loss);
    if (GetParam() == Method::kSparseGpt) {
      EXPECT_EQ(device.mask, cpu.mask);
    }
  }
}

TEST_P(PruneOnDeviceTest, DTypesScalesAndDeadInputsAreThoseOfTheCpu) {
  RandomLayer layer = MakeRandomLayer({.rows = 16, .cols = 64, .seed = 7});
  for (int64_t j = 0; j < 64; ++j) {
    layer.gram(3, j) = layer.gram(j, 3) = 0;
    layer.gram(40, j) = layer.gram(j, 40) = 0;
  }
  for (int64_t i = 0; i < layer.weights.size(); ++i) layer.weights.data()[i] *= 1e-3F;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    const TypedMatrix weights(layer.weights.view(), dtype, /*padding=*/5);
    const TypedMatrix gram(layer.gram.view(), DType::kF64, 3);
    const Problem problem = {weights.view(), gram.view(), Pattern::PerRow(0.5), ConstMatrixView(),
                             nullptr};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult cpu, SolveOn(problem, GetParam(), "cpu"));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult device, SolveOn(problem, GetParam(), "cuda"));
    EXPECT_EQ(device.mask, cpu.mask);
    EXPECT_NEAR(device.reconstructed_loss, cpu.reconstructed_loss, 1e-6 * cpu.reconstructed_loss);
    const TypedMatrix rounded(device.weights.view(), dtype, 0);
    for (int64_t row = 0; row < 16; ++row) {
      for (int64_t col = 0; col < 64; ++col) {
        float value = 0;
        ConvertToFloat(rounded.view().row_bytes(row) + static_cast<size_t>(col) * SizeOf(dtype),
                       dtype, 1, &value);
        ASSERT_EQ(device.weights(row, col), value);
      }
    }
  }
}

TEST_P(PruneOnDeviceTest, AGramThatIsNotPositiveIsRefusedOrDampedAsOnTheCpu) {
  RandomLayer layer = MakeRandomLayer({.rows = 4, .cols = 8, .seed = 9});
  for (int64_t i = 0; i < 8; ++i) {
    for (int64_t j = 0; j < 8; ++j) layer.gram(i, j) = i == j ? 1.0F : -0.2F;
  }
  const Problem problem = {layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.5),
                           ConstMatrixView(), nullptr};
  const absl::StatusOr<SolveResult> cpu = SolveOn(problem, GetParam(), "cpu", {.damping = 0});
  const absl::StatusOr<SolveResult> device = SolveOn(problem, GetParam(), "cuda", {.damping = 0});
  ASSERT_EQ(device.status().code(), cpu.status().code()) << device.status();
  if (cpu.ok()) {
    EXPECT_EQ(device->damping, cpu->damping);
    EXPECT_GT(device->damping, 0);
    return;
  }
  EXPECT_EQ(ReasonOf(device.status()), ReasonOf(cpu.status()));
}

TEST_P(PruneOnDeviceTest, StopsAndDeadlinesEndIt) {
  const RandomLayer layer = MakeRandomLayer({.rows = 24, .cols = 160, .seed = 5});
  const Problem problem = {layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.5),
                           ConstMatrixView(), nullptr};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* backend, BackendOf(kDevice));
  StopSignal stop;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, backend->CreateEngine({.stop = &stop}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto start,
                                testing::MakeStartingPoint(layer.weights.view(), layer.gram.view(),
                                                           problem.pattern, {}, 0.5));
  SPARSEFW_ASSERT_OK(engine->Load(start.problem()));
  const WeightMethod method =
      GetParam() == Method::kAlps ? WeightMethod::kAlps : WeightMethod::kSparseGpt;
  int looks = 0;
  EXPECT_THAT(engine->Prune({.method = method, .out_of_time = [&] { return ++looks > 1; }}),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(looks, 2);
  // What was cut short leaves the engine as it was.
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const PrunedWeights pruned, engine->Prune({.method = method}));
  SPARSEFW_EXPECT_OK(ValidateMaskCounts(pruned.mask, problem.pattern, "result"));
  SPARSEFW_EXPECT_OK(engine->Step({.count = 3}).status());
  stop.Request();
  EXPECT_THAT(engine->Prune({.method = method}), StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace sparsefw
