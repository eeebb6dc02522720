// Cards of a machine: which of them a process touches, one that is broken among others, what is
// kept for later use. On the emulated device.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/src/cuda/runtime/cuda_backend.h"
#include "core/src/cuda/runtime/use_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/backend.h"
#include "sparsefw/solver.h"
#include "tests/core/solver/memory_checkpoints.h"
#include "tests/cuda_on_host/control.h"
#include "tests/cuda_on_host/environment.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cuda {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::StartsWith;
using testing::StatusIs;

std::vector<std::string> NamesOf(const std::vector<const Backend*>& backends) {
  std::vector<std::string> names;
  for (const Backend* backend : backends) names.push_back(backend->Describe().name);
  return names;
}

class CardsTest : public ::testing::Test {
 protected:
  ~CardsTest() override {
    cuda_on_host::SetDeviceFault(-1, 0);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    static_cast<void>(cudaGetLastError());
  }

  const cuda_on_host::Environment cards_{"SPARSEFW_CUDA_ON_HOST_DEVICES", "8"};
};

// Cards 4 to 7 are those of this test alone.
TEST_F(CardsTest, OnlyCardsInUseHaveAContext) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const CudaModuleDevices found, OpenBackends());
  ASSERT_EQ(found.usable.size(), 8U);
  EXPECT_EQ(found.usable[5]->Describe().name, "cuda:5");
  for (int card = 4; card < 8; ++card) EXPECT_FALSE(cuda_on_host::HasContext(card)) << card;
  EXPECT_THAT(found.usable[5]->FreeMemoryBytes(), IsOk());
  EXPECT_TRUE(cuda_on_host::HasContext(5));
  for (const int card : {4, 6, 7}) EXPECT_FALSE(cuda_on_host::HasContext(card)) << card;
}

TEST_F(CardsTest, WaitingForACardLeavesTheCoreToOthersFromItsFirstUseOn) {
  ASSERT_THAT(UseDevice(3), IsOk());
  unsigned flags = 0;
  ASSERT_EQ(cudaGetDeviceFlags(&flags), cudaSuccess);
  EXPECT_NE(flags & cudaDeviceScheduleBlockingSync, 0U);
}

TEST_F(CardsTest, ABrokenCardIsNamedAndTheOthersAreUsed) {
  const cuda_on_host::Environment three("SPARSEFW_CUDA_ON_HOST_DEVICES", "3");
  for (const int broken : {0, 1, 2}) {
    cuda_on_host::SetDeviceFault(broken);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const CudaModuleDevices found, OpenBackends());
    std::vector<std::string> expected = {"cuda:0", "cuda:1", "cuda:2"};
    ASSERT_EQ(found.unusable.size(), 1U);
    EXPECT_EQ(found.unusable[0].name, expected[static_cast<size_t>(broken)]);
    EXPECT_THAT(found.unusable[0].reason, StartsWith("cudaGetDeviceProperties: "));
    expected.erase(expected.begin() + broken);
    EXPECT_EQ(NamesOf(found.usable), expected);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "nobody else finds the error";
  }
}

TEST_F(CardsTest, WithoutAnyThatWorksEveryCardSaysWhy) {
  const cuda_on_host::Environment one("SPARSEFW_CUDA_ON_HOST_DEVICES", "1");
  cuda_on_host::SetDeviceFault(0);
  const absl::Status none = OpenBackends().status();
  EXPECT_THAT(none, StatusIs(absl::StatusCode::kFailedPrecondition, "DEVICE_UNAVAILABLE"));
  EXPECT_THAT(std::string(none.message()), StartsWith("cuda:0: cudaGetDeviceProperties: "));
}

TEST_F(CardsTest, ACardThatFailsAtItsFirstUseSaysSo) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const CudaModuleDevices found, OpenBackends());
  cuda_on_host::SetDeviceFault(1);
  EXPECT_THAT(found.usable[1]->FreeMemoryBytes(),
              StatusIs(absl::StatusCode::kInternal, "DEVICE_LOST"));
  EXPECT_THAT(found.usable[2]->FreeMemoryBytes(), IsOk());
}

// A driver that hangs must not hang whoever asks for a name.
TEST_F(CardsTest, ADescriptionAsksNoDriver) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const CudaModuleDevices found, OpenBackends());
  cuda_on_host::SetDeviceFault(2, 1);
  EXPECT_EQ(found.usable[2]->Describe().name, "cuda:2");
  EXPECT_GT(found.usable[2]->Describe().memory_bytes, 0);
  cuda_on_host::SetDeviceFault(2, 2);  // the next call is the first one and works
  EXPECT_THAT(found.usable[2]->Describe().description, HasSubstr("emulated"));
  EXPECT_EQ(cudaSetDevice(2), cudaSuccess);
  EXPECT_NE(cudaSetDevice(2), cudaSuccess);
}

class RunsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(CudaModuleDevices found, OpenBackends());
    backend_ = found.usable.front();
    problem_.weights = layer_.weights.view();
    problem_.gram = layer_.gram.view();
    problem_.pattern = Pattern::Unstructured(0.5);
  }
  absl::StatusOr<SolveResult> Run(std::span<const std::byte> resume = {}) {
    return Solve(problem_, {.iterations = 40, .report_every = 10}, *backend_, nullptr, nullptr,
                 {&sink_, resume});
  }

  const testing::RandomLayer layer_ = testing::MakeRandomLayer({.rows = 16, .cols = 48});
  const Backend* backend_ = nullptr;
  Problem problem_;
  testing::MemorySink sink_;
};

// To make and to free pinned memory waits for all that runs on the device.
TEST_F(RunsTest, PinnedMemoryIsUsedAgain) {
  ASSERT_THAT(Run(), IsOk());
  const int64_t made = cuda_on_host::PinnedAllocations();
  for (int times = 0; times < 3; ++times) ASSERT_THAT(Run(), IsOk());
  EXPECT_EQ(cuda_on_host::PinnedAllocations(), made);
}

TEST_F(RunsTest, TheTagOfCheckpointsNamesTheVersionOfCublas) {
  const cuda_on_host::Environment version("SPARSEFW_CUDA_ON_HOST_CUBLAS", "13.1.2");
  EXPECT_THAT(backend_->checkpoint_tag(), HasSubstr(", cuBLAS 13.1.2"));
}

TEST_F(RunsTest, ACheckpointOfAnotherCublasIsNotUsed) {
  ASSERT_THAT(Run(), IsOk());
  ASSERT_FALSE(sink_.checkpoints.empty());
  const auto checkpoint = std::exchange(sink_.checkpoints, {}).front();
  EXPECT_THAT(Run(checkpoint), IsOk());
  const cuda_on_host::Environment version("SPARSEFW_CUDA_ON_HOST_CUBLAS", "13.1.0");
  const absl::Status refused = Run(checkpoint).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cuBLAS 13.1.0"));
}

}  // namespace
}  // namespace sparsefw::cuda
