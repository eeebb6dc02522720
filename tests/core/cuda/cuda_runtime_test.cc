// The runtime under the CUDA engine: memory, streams, handles, captures,
// waiting. On the emulated device.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/prune/inverse_factor.h"
#include "core/src/cuda/runtime/allow_shared.h"
#include "core/src/cuda/runtime/cuda_backend.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/backend.h"
#include "sparsefw/status_macros.h"
#include "tests/cuda_on_host/control.h"
#include "tests/cuda_on_host/environment.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw::cuda {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr int64_t kMegabyte = int64_t{1} << 20;

absl::StatusOr<std::unique_ptr<ExecutionContext>> Open() {
  return ExecutionContext::Open(0, kSmallWorkspaceBytes, nullptr);
}

TEST(CudaMemoryTest, WhatThePoolKeepsIsGivenBackBeforeAnAllocationFails) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Stream stream, CreateStream());
  cuda_on_host::FailUntilTrimmed(kMegabyte);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto buffer,
                                DeviceBuffer<char>::Create(2 * kMegabyte, stream.get()));
  EXPECT_NE(buffer.data(), nullptr);
}

TEST(CudaMemoryTest, WhatThePoolKeepsIsGivenBackBeforeCusolverFails) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto context, Open());
  const int64_t stride = StrideOf(2);
  std::vector<double> matrix(static_cast<size_t>(2 * stride));
  matrix[0] = matrix[static_cast<size_t>(stride) + 1] = 4;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto h, context->Upload(matrix));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto factor, InverseFactor::Create(2, *context));
  cuda_on_host::FailUntilTrimmed(0);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto failed, factor->Factorize({.matrix = h.data()}));
  EXPECT_FALSE(failed.has_value());
  double corner = 0;
  ASSERT_THAT(CopyAndWait(&corner, factor->inverse(), 1, cudaMemcpyDeviceToHost, context->stream()),
              IsOk());
  EXPECT_EQ(corner, 0.5);
}

TEST(CudaMemoryTest, WhatIsTooMuchForTheDeviceStillFails) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Stream stream, CreateStream());
  const cuda_on_host::Environment memory("SPARSEFW_CUDA_ON_HOST_MEMORY", "1000000");
  EXPECT_THAT(DeviceBuffer<char>::Create(2 * kMegabyte, stream.get()),
              StatusIs(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY"));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(CudaBackendTest, ADeviceWithoutMemoryPoolsIsNotUsed) {
  cuda_on_host::SetMemoryPoolsSupported(false);
  const auto backends = OpenBackends();
  cuda_on_host::SetMemoryPoolsSupported(true);
  EXPECT_THAT(backends, StatusIs(absl::StatusCode::kFailedPrecondition, "DEVICE_UNAVAILABLE"));
  EXPECT_THAT(std::string(backends.status().message()), ::testing::HasSubstr("no memory pools"));
}

TEST(ExecutionContextTest, StreamsAndHandlesAreUsedAgain) {
  { SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto first, Open()); }
  const int64_t made = cuda_on_host::CublasHandlesMade();
  for (int times = 0; times < 3; ++times) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto again, Open());
  }
  EXPECT_EQ(cuda_on_host::CublasHandlesMade(), made);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto one, Open());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto other, Open());
  EXPECT_NE(one->stream(), other->stream());
  EXPECT_EQ(cuda_on_host::CublasHandlesMade(), made + 1);
}

TEST(ExecutionContextTest, AStreamThatFailedIsNotUsedAgain) {
  const auto open_three = [] {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto first, Open());
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto second, Open());
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto third, Open());
  };
  open_three();  // as many are kept from now on
  const int64_t made = cuda_on_host::CublasHandlesMade();
  {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto fails, Open());
    cuda_on_host::SetFault(cudaErrorIllegalAddress);
  }
  cuda_on_host::SetFault(cudaSuccess);
  open_three();
  EXPECT_EQ(cuda_on_host::CublasHandlesMade(), made + 1);
}

TEST(CudaStatusTest, ErrorsAfterWhichNothingIsKnownOfTheDeviceMeanThatItIsLost) {
  for (const cudaError_t error :
       {cudaErrorIllegalAddress, cudaErrorUnknown, cudaErrorContextIsDestroyed,
        cudaErrorExternalDevice, cudaErrorLaunchFailure, cudaErrorMpsClientTerminated}) {
    EXPECT_TRUE(IsSticky(error)) << cudaGetErrorName(error);
    EXPECT_THAT(ToStatus(error, "call()"), StatusIs(absl::StatusCode::kInternal, "DEVICE_LOST"));
  }
  EXPECT_FALSE(IsSticky(cudaErrorInvalidValue));
}

// cuBLAS gives the same codes where a launch failed for want of memory: the device decides.
TEST(CudaStatusTest, AnErrorOfCublasMeansALostDeviceWhereTheDeviceAnswersWithAFault) {
  for (const cublasStatus_t status : {CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_INTERNAL_ERROR,
                                      CUBLAS_STATUS_MAPPING_ERROR}) {
    EXPECT_THAT(ToStatus(status, "cublasGemmEx()"), StatusIs(absl::StatusCode::kInternal, ""));
    cuda_on_host::SetFault(cudaErrorIllegalAddress);
    const absl::Status lost = ToStatus(status, "cublasGemmEx()");
    cuda_on_host::SetFault(cudaSuccess);
    EXPECT_THAT(lost, StatusIs(absl::StatusCode::kInternal, "DEVICE_LOST"));
  }
}

TEST(CudaStatusTest, ALaunchThatFailsNamesTheCallAndTheReason) {
  EXPECT_THAT(ToStatus(CudaError{}), IsOk());
  cuda_on_host::SetFault(cudaErrorIllegalAddress);
  const absl::Status status = ToStatus(LaunchBeginStep(nullptr, {}, nullptr));
  cuda_on_host::SetFault(cudaSuccess);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "DEVICE_LOST"));
  EXPECT_EQ(status.message(), absl::StrFormat("cudaLaunchKernelEx: %s (cudaErrorIllegalAddress)",
                                              cudaGetErrorString(cudaErrorIllegalAddress)));
  // Above 48 KiB the kernel is asked for first.
  cuda_on_host::SetFault(cudaErrorInvalidValue);
  const absl::Status refused = ToStatus(AllowShared(nullptr, size_t{1} << 16));
  cuda_on_host::SetFault(cudaSuccess);
  EXPECT_THAT(std::string(refused.message()), ::testing::StartsWith("cudaGetDevice: "));
}

class EngineTest : public ::testing::Test {
 protected:
  // 40 steps and their mask.
  absl::StatusOr<std::pair<StepStats, RoundedMask>> Run() {
    SPARSEFW_ASSIGN_OR_RETURN(const CudaModuleDevices found, OpenBackends());
    queries_ = cuda_on_host::PropertyQueries();
    SPARSEFW_ASSIGN_OR_RETURN(const auto engine, found.usable.front()->CreateEngine({}));
    SPARSEFW_RETURN_IF_ERROR(engine->Load(start_->problem()));
    SPARSEFW_ASSIGN_OR_RETURN(const StepStats stats, engine->Step({.count = 40}));
    SPARSEFW_ASSIGN_OR_RETURN(RoundedMask rounded, engine->Round());
    SPARSEFW_RETURN_IF_ERROR(
        engine->Refine(rounded.mask, {.out_of_time = [] { return true; }}).status());
    return std::pair{stats, std::move(rounded)};
  }
  void SetUp() override {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        auto start, testing::MakeStartingPoint(layer_.weights.view(), layer_.gram.view(),
                                               Pattern::Unstructured(0.5), {}, 0.5));
    start_ = std::make_unique<testing::StartingPoint>(std::move(start));
  }

  const testing::RandomLayer layer_ = testing::MakeRandomLayer({.rows = 16, .cols = 48});
  std::unique_ptr<testing::StartingPoint> start_;
  int64_t queries_ = 0;
};

TEST_F(EngineTest, AFailedCaptureIsCountedAndChangesNothing) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto plain, Run());
  EXPECT_EQ(plain.first.engine.capture_failures, 0);
  // Tried again; and given up after some failures, since each takes time.
  for (const auto& [captures, failures] :
       {std::pair{int64_t{1}, int64_t{1}}, std::pair{int64_t{2}, int64_t{2}},
        std::pair{int64_t{1000}, int64_t{3}}}) {
    SCOPED_TRACE(captures);
    cuda_on_host::FailCaptures(captures);
    const auto run = Run();
    cuda_on_host::FailCaptures(0);
    ASSERT_THAT(run, IsOk());
    EXPECT_EQ(run->first.engine.capture_failures, failures);
    EXPECT_EQ(run->first.iteration, 40);
    EXPECT_EQ(run->first.relaxed_loss, plain.first.relaxed_loss);
    EXPECT_EQ(run->second.mask, plain.second.mask);
  }
}

TEST_F(EngineTest, AsksForNoPropertiesOfTheDevice) {
  ASSERT_THAT(Run(), IsOk());
  EXPECT_EQ(cuda_on_host::PropertyQueries(), queries_);
}

}  // namespace
}  // namespace sparsefw::cuda
