// A Gram that is on the device before the solve gives what one from the host gives.
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "core/src/solver/shrunk_gram.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/solver.h"
#include "sparsefw/sweep.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using testing::EngineKind;
using testing::IsOk;
using testing::StatusIs;

// Everything but the times, bit for bit.
void ExpectSame(const SolveResult& one, const SolveResult& other) {
  EXPECT_EQ(one.mask, other.mask);
  EXPECT_EQ(one.full_loss, other.full_loss);
  EXPECT_EQ(one.warm_start_loss, other.warm_start_loss);
  EXPECT_EQ(one.relaxed_loss, other.relaxed_loss);
  EXPECT_EQ(one.rounded_loss, other.rounded_loss);
  EXPECT_EQ(one.final_loss, other.final_loss);
  EXPECT_EQ(one.reconstructed_loss, other.reconstructed_loss);
  EXPECT_EQ(one.lower_bound, other.lower_bound);
  EXPECT_EQ(one.drift, other.drift);
  EXPECT_EQ(one.swaps, other.swaps);
  ASSERT_EQ(one.weights.size(), other.weights.size());
  EXPECT_TRUE(std::equal(one.weights.data(), one.weights.data() + one.weights.size(),
                         other.weights.data()));
}

class Results final : public SweepObserver {
 public:
  void OnReport(const ProgressReport&) override {}
  absl::Status OnResult(size_t, absl::StatusOr<SolveResult> result) override {
    if (!result.ok()) return result.status();
    all.push_back(*std::move(result));
    return absl::OkStatus();
  }
  std::vector<SolveResult> all;
};

struct Case {
  EngineKind kind;  // kCudaFloat32: a layer that is computed in float32
  DType gram;
};

class DeviceGramTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    SPARSEFW_NEED_DEVICE(GetParam().kind);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(backend_, testing::BackendOf(GetParam().kind));
  }
  SolveOptions Options() const {
    SolveOptions options;
    options.iterations = 20;
    options.report_every = 10;
    options.threads = 2;
    options.swaps = true;
    options.reconstruct = true;
    if (testing::IsFloat32(GetParam().kind)) options.product_precision = ProductPrecision::kTf32;
    return options;
  }
  absl::StatusOr<SolveResult> Run(const DeviceGram* gram) {
    problem_.device_gram = gram;
    return Solve(problem_, Options(), *backend_, nullptr, nullptr);
  }

  const testing::RandomLayer layer_ = testing::MakeRandomLayer({.rows = 12, .cols = 40});
  const testing::TypedMatrix weights_{layer_.weights.view(), DType::kBF16};
  const testing::TypedMatrix gram_{layer_.gram.view(), GetParam().gram};
  Problem problem_ = {.weights = weights_.view(),
                      .gram = gram_.view(),
                      .pattern = Pattern::Unstructured(0.5),
                      .saliency = {}};
  const Backend* backend_ = nullptr;
};

TEST_P(DeviceGramTest, GivesTheSameBits) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto gram, backend_->UploadGram(gram_.view(), nullptr));
  EXPECT_EQ(gram != nullptr, testing::IsCuda(GetParam().kind));
  EXPECT_EQ(backend_->DeviceGramBytes(40, GetParam().gram) > 0, gram != nullptr);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult from_host, Run(nullptr));
  EXPECT_GT(from_host.reconstructed_loss, 0);
  for (int times = 2; times > 0; --times) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult from_device, Run(gram.get()));
    ExpectSame(from_device, from_host);
  }
}

// What is on the device is the Gram as it was given. Engines shrink it with the bits of the host's
// copy, which is given here. The joint search begins with work of the host, on such a copy.
TEST_P(DeviceGramTest, WithAShrinkageTheEngineHasItsOwn) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto gram, backend_->UploadGram(gram_.view(), nullptr));
  EXPECT_EQ(backend_->shrinks_gram(), gram != nullptr);
  const ShrunkGram copy(gram_.view(), 0.3);
  for (const bool joint : {false, true}) {
    SCOPED_TRACE(joint);
    SolveOptions options = Options();
    if (joint) options.method = Method::kWanda;
    options.joint = joint;
    options.reconstruct = !joint;
    const auto run = [&](ConstMatrixView view, const DeviceGram* device_gram, double shrinkage) {
      problem_.gram = view;
      problem_.device_gram = device_gram;
      options.shrinkage = shrinkage;
      return Solve(problem_, options, *backend_, nullptr, nullptr);
    };
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult expected, run(copy.view(), nullptr, 0));
    for (const DeviceGram* device_gram : {static_cast<const DeviceGram*>(nullptr), gram.get()}) {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult shrunk, run(gram_.view(), device_gram, 0.3));
      ExpectSame(shrunk, expected);
      EXPECT_TRUE(shrunk.unshrunk.has_value());
    }
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult plain, run(gram_.view(), gram.get(), 0));
    EXPECT_NE(expected.full_loss, plain.full_loss);
  }
}

TEST_P(DeviceGramTest, SweepsUseItForEveryPoint) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto gram, backend_->UploadGram(gram_.view(), nullptr));
  std::vector<SweepPoint> points(3, {problem_.pattern, Options()});
  points[1].options.alpha = 0.3;
  points[2].options.method = Method::kSparseGpt;
  points[2].options.swaps = points[2].options.reconstruct = false;
  Results from_host;
  Results from_device;
  ASSERT_THAT(SolveSweep(problem_, points, *backend_, from_host, nullptr), IsOk());
  problem_.device_gram = gram.get();
  ASSERT_THAT(SolveSweep(problem_, points, *backend_, from_device, nullptr), IsOk());
  ASSERT_EQ(from_host.all.size(), 3U);
  for (size_t i = 0; i < 3; ++i) ExpectSame(from_device.all[i], from_host.all[i]);
}

TEST_P(DeviceGramTest, SeveralEnginesReadItAtOnce) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto gram, backend_->UploadGram(gram_.view(), nullptr));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult alone, Run(gram.get()));
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult beside,
                                    Solve(problem_, Options(), *backend_, nullptr, nullptr));
      ExpectSame(beside, alone);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(DeviceGramTest, AnUploadCanBeStopped) {
  StopSignal stop;
  stop.Request();
  const auto gram = backend_->UploadGram(gram_.view(), &stop);
  if (testing::IsCuda(GetParam().kind)) {
    EXPECT_THAT(gram, StatusIs(absl::StatusCode::kCancelled));
  } else {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto nothing, gram);
    EXPECT_EQ(nothing, nullptr);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, DeviceGramTest,
                         ::testing::Values(Case{EngineKind::kCpuFloat64, DType::kF32},
                                           Case{EngineKind::kCudaFloat64, DType::kF32},
                                           Case{EngineKind::kCudaFloat64, DType::kF64},
                                           Case{EngineKind::kCudaFloat32, DType::kF32}),
                         [](const auto& test) {
                           return testing::NameOf(test.param.kind) + "_gram_" +
                                  std::string(DTypeName(test.param.gram));
                         });

}  // namespace
}  // namespace sparsefw
