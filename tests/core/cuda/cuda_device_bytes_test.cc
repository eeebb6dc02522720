// EstimateDeviceBytes against what an engine holds on the device.
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/src/cuda/memory/device_bytes.h"
#include "core/src/cuda/runtime/cuda_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/backend.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/cuda_on_host/control.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw {
namespace {

using testing::IsOk;

struct Case {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  Pattern pattern;
  MemoryRequest request;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

MemoryRequest SparseGpt(int64_t block) {
  return {.iterates = false,
          .prunes = true,
          .method = WeightMethod::kSparseGpt,
          .sparsegpt = {.block = block}};
}

// Small and large layers; what follows from the dtypes of W and G; each of the
// stages that may hold most.
std::vector<Case> Cases() {
  const Pattern whole = Pattern::Unstructured(0.6);
  const Pattern per_row = Pattern::PerRow(0.5);
  const Pattern two_four = Pattern::KeepOfGroup(2, 4);
  return {
      {"plain", 640, 640, whole, {}},
      {"plain_bf16", 690, 625, per_row, {.weights = DType::kBF16}},
      {"plain_f64_gram", 640, 640, two_four, {.gram = DType::kF64}},
      {"float64", 625, 625, whole, {}},
      {"float64_f64_gram", 1500, 250, per_row, {.gram = DType::kF64}},
      {"tf32", 625, 560, whole, {.product_precision = ProductPrecision::kTf32}},
      {"wide", 252, 1900, two_four, {.weights = DType::kBF16}},
      {"tall", 3100, 160, whole, {}},
      {"swaps", 640, 640, whole, {.swaps = true}},
      {"swaps_tall", 1900, 250, per_row, {.swaps = true, .weights = DType::kBF16}},
      {"swaps_float64", 624, 624, two_four, {.swaps = true, .gram = DType::kF64}},
      {"reconstruct", 640, 640, two_four, {.reconstruct = true}},
      {"reconstruct_tall", 1600, 320, whole, {.reconstruct = true, .weights = DType::kBF16}},
      {"reconstruct_float64", 625, 625, per_row, {.reconstruct = true}},
      {"joint", 60, 420, per_row, {.joint = true, .iterates = false}},
      {"joint_float64", 60, 240, two_four, {.joint = true, .precision = Precision::kFloat64}},
      {"joint_tall", 3000, 96, whole, {.joint = true, .weights = DType::kBF16}},
      {"all", 690, 640, whole, {.swaps = true, .reconstruct = true, .gram = DType::kF64}},
      {"sweep", 640, 640, per_row, {.sweep = true}},
      {"shrunk", 640, 640, per_row, {.shrinks = true}},
      {"shrunk_f64_gram",
       125,
       940,
       per_row,
       {.iterates = false, .shrinks = true, .gram = DType::kF64}},
      {"one_shot", 640, 640, per_row, {.iterates = false}},
      {"one_shot_tall", 30000, 24, whole, {.iterates = false, .weights = DType::kBF16}},
      {"sweep_tall", 6000, 96, whole, {.sweep = true}},
      {"one_shot_f64_gram", 125, 940, per_row, {.iterates = false, .gram = DType::kF64}},
      {"one_shot_reconstruct", 640, 640, whole, {.reconstruct = true, .iterates = false}},
      {"alps", 192, 192, whole, {.iterates = false, .prunes = true}},
      {"alps_tall", 600, 96, per_row, {.iterates = false, .prunes = true}},
      {"sparsegpt", 400, 400, whole, SparseGpt(128)},
      {"sparsegpt_tall", 3100, 160, per_row, SparseGpt(1000)},
      {"sparsegpt_wide", 160, 900, whole, SparseGpt(900)},
      {"sparsegpt_loss", 1500, 768, two_four, SparseGpt(128)},
      {"sparsegpt_groups", 3000, 576, Pattern::KeepOfGroup(96, 192), SparseGpt(128)},
      {"one_shot_swaps", 640, 640, whole, {.swaps = true, .iterates = false}},
  };
}

// A layer that is quick to make: a dominant diagonal, a little beside it.
Matrix<float> Weights(int64_t rows, int64_t cols) {
  testing::Random random(7);
  Matrix<float> weights(rows, cols);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      weights.row(row)[col] = static_cast<float>(random.Uniform() - 0.5);
    }
  }
  return weights;
}

Matrix<float> Gram(int64_t cols) {
  Matrix<float> gram(cols, cols);
  for (int64_t row = 0; row < cols; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      gram.row(row)[col] = row == col ? 2.0F : 0.5F / static_cast<float>(cols + row + col);
    }
  }
  return gram;
}

// The calls of the solver, the long loops cut short after all has been allocated.
absl::Status Work(Engine& engine, const testing::StartingPoint& start, const DeviceGram* gram,
                  const MemoryRequest& request) {
  EngineProblem problem = start.problem();
  problem.reused = request.sweep;
  problem.device_gram = gram;
  problem.shrinkage = request.shrinks ? 0.25 : 0;
  const std::vector<double> ones(static_cast<size_t>(start.weights.cols()), 1.0);
  SPARSEFW_ASSIGN_OR_RETURN(
      problem.saliency, MakeSaliencySource(start.weights, ones, {.method = SaliencyMethod::kRia}));
  Mask warm;
  Mask fixed;
  const StartChoice choice = {.warm = &warm, .fixed = &fixed, .alpha = 0.5};
  problem.warm = &warm;
  problem.fixed = &fixed;
  problem.choice = &choice;
  for (int times = request.sweep ? 2 : 1; times > 0; --times) {
    SPARSEFW_RETURN_IF_ERROR(engine.Load(problem));
    SPARSEFW_RETURN_IF_ERROR(engine.Loss(start.warm).status());
    if (request.iterates) {
      SPARSEFW_RETURN_IF_ERROR(engine.Step({.count = 1}).status());
      SPARSEFW_ASSIGN_OR_RETURN(const RoundedMask rounded, engine.Round());
      SPARSEFW_RETURN_IF_ERROR(engine.Loss(rounded.mask).status());
      SPARSEFW_RETURN_IF_ERROR(engine.LossNear(rounded.mask, {rounded.mask, 0}).status());
      SPARSEFW_RETURN_IF_ERROR(engine.Step({.measure_drift = true}).status());
    }
    if (request.swaps) {
      int looks = 0;
      SPARSEFW_ASSIGN_OR_RETURN(
          const RefinedMask refined,
          engine.Refine(start.warm, {.out_of_time = [&] { return ++looks > 1; }}));
      SPARSEFW_RETURN_IF_ERROR(engine.Loss(refined.mask).status());
    }
    if (request.prunes) {
      SPARSEFW_ASSIGN_OR_RETURN(
          const PrunedWeights pruned,
          engine.Prune({.method = request.method, .sparsegpt = request.sparsegpt}));
      SPARSEFW_RETURN_IF_ERROR(engine.LossOfWeights(pruned.weights).status());
    }
    if (request.joint) {
      int looks = 0;
      const Matrix<float> none(start.warm.rows(), start.warm.cols());
      SPARSEFW_ASSIGN_OR_RETURN(
          const JointResult found,
          engine.SearchJointly(start.warm, {.alpha = 0.5,  // the device fixes them
                                            .weights = &none,
                                            .out_of_time = [&] { return ++looks > 2; },
                                            .solving_out_of_time = [&] { return ++looks > 5; }}));
      SPARSEFW_RETURN_IF_ERROR(engine.LossOfWeights(found.weights).status());
    }
    if (request.reconstruct) {
      int looks = 0;
      SPARSEFW_ASSIGN_OR_RETURN(
          const Matrix<float> solved,
          engine.Reconstruct(start.warm, {.out_of_time = [&] { return ++looks > 2; }}));
      SPARSEFW_RETURN_IF_ERROR(engine.LossOfWeights(solved).status());
    }
  }
  return absl::OkStatus();
}

class DeviceBytesTest : public ::testing::TestWithParam<Case> {};

TEST_P(DeviceBytesTest, EstimateIsThePeakOrUpToATenthMore) {
  const Case& c = GetParam();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const CudaModuleDevices found, cuda::OpenBackends());
  const Backend& backend = *found.usable.front();
  // The emulation is slow.
  const int64_t share = cuda_on_host::Emulated() ? 2 : 3;
  const int64_t rows = c.rows * share / 3 / 4 * 4, cols = c.cols * share / 3 / 4 * 4;
  const Matrix<float> plain_weights = Weights(rows, cols);
  const Matrix<float> plain_gram = Gram(cols);
  const testing::TypedMatrix weights(plain_weights.view(), c.request.weights);
  const testing::TypedMatrix gram(plain_gram.view(), c.request.gram);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const auto start,
      testing::MakeStartingPoint(weights.view(), gram.view(), c.pattern, {}, 0.5));

  for (const bool given : {false, true}) {
    // And half of the cases have the one there, half the other.
    if (cuda_on_host::Emulated() && given != (c.name.size() % 2 == 0)) continue;
    SCOPED_TRACE(given ? "a Gram that is there already" : "the engine's own Gram");
    ASSERT_EQ(cuda_on_host::AllocatedBytes(), 0U);
    cuda_on_host::ResetPeak();
    {
      std::shared_ptr<const DeviceGram> resident;
      if (given) {
        SPARSEFW_ASSERT_OK_AND_ASSIGN(resident, backend.UploadGram(gram.view(), nullptr));
      }
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const auto engine, backend.CreateEngine({.product_precision = c.request.product_precision,
                                                   .precision = c.request.precision}));
      ASSERT_THAT(Work(*engine, start, resident.get(), c.request), IsOk());
    }
    EXPECT_EQ(cuda_on_host::AllocatedBytes(), 0U);
    const auto peak = static_cast<int64_t>(cuda_on_host::PeakBytes());
    MemoryRequest request = c.request;
    request.pattern = c.pattern;
    request.device_gram = given;
    const int64_t estimate = backend.EstimateDeviceBytes(rows, cols, request) +
                             (given ? backend.DeviceGramBytes(cols, c.request.gram) : 0);
    // A real pool rounds every allocation up.
    // Beside a small factor cuSOLVER may want a workspace.
    const int64_t workspace_of_factor = c.request.prunes ? 32 << 20 : 0;
    const int64_t rounding = cuda_on_host::Emulated() ? 0 : (1 << 20) + workspace_of_factor;
    EXPECT_GE(estimate + rounding, peak);
    EXPECT_LE(estimate, peak + peak / 10) << "peak " << peak;
    // Without the workspace, which would hide an error of a small layer.
    const int64_t workspace = cuda::WorkspaceBytes(rows, cols);
    EXPECT_LE(estimate - workspace, (peak - workspace) * 11 / 10);
  }
}

INSTANTIATE_TEST_SUITE_P(Work, DeviceBytesTest, ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

TEST(DeviceBytesTest, DevicesThatAreTheHostHaveNothingOfTheirOwn) {
  for (const char* name : {"cpu", "reference"}) {
    EXPECT_EQ((*FindBackend(name))->EstimateDeviceBytes(4096, 4096, {.swaps = true}), 0) << name;
    EXPECT_EQ((*FindBackend(name))->DeviceGramBytes(4096, DType::kF64), 0) << name;
    EXPECT_EQ((*FindBackend(name))->DeviceGramSumBytes(4096), 0) << name;
  }
}

TEST(DeviceBytesTest, AGramSumTakesWhatItSays) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const CudaModuleDevices found, cuda::OpenBackends());
  const Backend& backend = *found.usable.front();
  for (const int64_t inputs : {40, 700, 2500}) {
    SCOPED_TRACE(inputs);
    ASSERT_EQ(cuda_on_host::AllocatedBytes(), 0U);
    cuda_on_host::ResetPeak();
    {
      const Matrix<float> tokens = Weights(1100, inputs);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto sum, backend.CreateGramAccumulator(inputs, 1));
      ASSERT_THAT(sum->Add(tokens.view()), IsOk());
      ASSERT_THAT(sum->AddGram(Gram(inputs).view(), 5), IsOk());
      std::vector<double> row(static_cast<size_t>(inputs));
      ASSERT_THAT(sum->CopyRows(0, 1, row.data()), IsOk());
    }
    const auto peak = static_cast<int64_t>(cuda_on_host::PeakBytes());
    const int64_t estimate = backend.DeviceGramSumBytes(inputs);
    const int64_t rounding = cuda_on_host::Emulated() ? 0 : 1 << 20;  // a real pool rounds up
    EXPECT_GE(estimate + rounding, peak);
    EXPECT_LE(estimate, peak + peak / 10) << "peak " << peak;
  }
}

// The batches of a small layer end long before the bound of all, so that jobs share a device.
TEST(DeviceBytesTest, JointJobsTakeMemoryByTheirShape) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const CudaModuleDevices found, cuda::OpenBackends());
  const auto gibibytes = [&](int64_t rows, int64_t cols) {
    const MemoryRequest request = {.joint = true, .iterates = false};
    return static_cast<double>(found.usable.front()->EstimateDeviceBytes(rows, cols, request)) /
           (int64_t{1} << 30);
  };
  EXPECT_LT(gibibytes(1024, 1024), 3.5);
  EXPECT_LT(gibibytes(2048, 2048), 8.5);
  EXPECT_LT(gibibytes(64, 4096), 4.5) << "rows that are not there take nothing";
  EXPECT_LT(gibibytes(4096, 4096), 8.75);
  EXPECT_GT(gibibytes(4096, 4096), 8) << "and large layers as much as the bound";
}

TEST(DeviceBytesTest, AGramThatIsThereIsNotUploadedAgainAtEveryLoss) {
  if (!cuda_on_host::Emulated()) GTEST_SKIP() << "copies are counted by the emulation alone";
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const CudaModuleDevices found, cuda::OpenBackends());
  const Backend& backend = *found.usable.front();
  const Matrix<float> weights = Weights(64, 512);
  const Matrix<float> gram = Gram(512);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const auto start,
      testing::MakeStartingPoint(weights.view(), gram.view(), Pattern::PerRow(0.5), {}, 0.5));
  const int64_t gram_bytes = gram.size() * 4;
  const int64_t before = cuda_on_host::CopiedToDevice();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto resident, backend.UploadGram(gram.view(), nullptr));
  EXPECT_EQ(cuda_on_host::CopiedToDevice() - before, gram_bytes);
  for (const DeviceGram* given : {resident.get(), static_cast<const DeviceGram*>(nullptr)}) {
    const int64_t first = cuda_on_host::CopiedToDevice();
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, backend.CreateEngine({}));
    ASSERT_THAT(Work(*engine, start, given, {.swaps = true, .reconstruct = true}), IsOk());
    for (int times = 3; times > 0; --times) ASSERT_THAT(engine->Loss(start.warm), IsOk());
    const int64_t copied = cuda_on_host::CopiedToDevice() - first;
    // W for the scale, for the layer and for every loss, and little else.
    EXPECT_LT(copied, 12 * weights.size() * 4 + (given == nullptr ? gram_bytes : 0));
    EXPECT_GE(copied, given == nullptr ? gram_bytes : 0);
  }
}

TEST(DeviceBytesTest, TheHostHoldsMasksAndNewWeightsAlone) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const CudaModuleDevices found, cuda::OpenBackends());
  const auto estimate = [&](const MemoryRequest& request) {
    return found.usable.front()->EstimateHostBytes(4096, 4096, request);
  };
  const int64_t size = 4096 * 4096;
  const int64_t plain = estimate({.swaps = true});
  EXPECT_GE(plain, 6 * size / 8);
  EXPECT_LT(plain, 6 * size / 8 + (int64_t{64} << 20));
  // Those of a method, those solved on its mask, and W there in their place.
  EXPECT_EQ(estimate({.prunes = true}), plain + 4 * size);
  EXPECT_EQ(estimate({.reconstruct = true}), plain + 2 * 4 * size);
  EXPECT_EQ(estimate({.reconstruct = true, .prunes = true}), plain + 3 * 4 * size);
}

TEST(DeviceBytesTest, LargeLayersDoNotOverflow) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const CudaModuleDevices found, cuda::OpenBackends());
  const int64_t side = int64_t{1} << 17;
  // W, E, U, x, saliency and G in float32.
  EXPECT_GT(found.usable.front()->EstimateDeviceBytes(side, side, {}), 6 * 4 * side * side);
}

}  // namespace
}  // namespace sparsefw
