// The registry where there are CUDA devices: those of the fake module.
#include <stdlib.h>

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/backend.h"
#include "sparsefw/solver.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StatusIs;
using ::testing::ElementsAre;

// Before anything asks the registry.
const int g_fake_cuda =
    setenv("SPARSEFW_CUDA_MODULE", SPARSEFW_BINARY_DIR "/tests/libsparsefw_fake_cuda.so", 1);

std::vector<std::string> DeviceNames() {
  std::vector<std::string> names;
  for (const Backend* backend : Backends()) names.push_back(backend->Describe().name);
  return names;
}

// Stands first: it makes the registry.
TEST(CudaRegistryTest, IsMadeOnceWhoeverComesFirst) {
  ASSERT_EQ(g_fake_cuda, 0);
  std::vector<const Backend*> first(4);
  {
    std::vector<std::jthread> threads;
    for (const Backend*& found : first) {
      threads.emplace_back([&found] { found = Backends().front(); });
    }
  }
  for (const Backend* found : first) EXPECT_EQ(found, Backends().front());
}

TEST(CudaRegistryTest, PrefersCudaInTheOrderOfItsDevices) {
  EXPECT_THAT(DeviceNames(), ElementsAre("cuda:0", "cuda:1", "cpu", "reference"));
}

TEST(CudaRegistryTest, FindsBackendsAndDevices) {
  const std::pair<const char*, size_t> expected[] = {
      {"cuda", 0}, {"cuda:0", 0}, {"cuda:1", 1}, {"cpu", 2}, {"reference", 3}};
  for (const auto& [name, index] : expected) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* backend, FindBackend(name));
    EXPECT_EQ(backend, Backends()[index]) << name;
  }
}

TEST(CudaRegistryTest, NamesTheDevicesThereAre) {
  for (const std::string name : {"cuda:2", "cuda:0,1", "cud"}) {
    const absl::Status status = FindBackend(name).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, "DEVICE_UNAVAILABLE"));
    EXPECT_EQ(std::string(status.message()),
              "device must be one of cuda:0, cuda:1, cpu, reference; got " + name);
  }
}

TEST(CudaRegistryTest, TellsWhichDevicesWereFound) {
  const std::vector<DeviceProbe> probes = ProbeDevices();
  ASSERT_EQ(probes.size(), 1U);
  EXPECT_TRUE(probes[0].available);
  EXPECT_EQ(probes[0].reason, "cuda:0 is Fake GPU A, cuda:1 is Fake GPU B");
}

// Objects made on one side of the border are used and released on the other.
TEST(CudaRegistryTest, SolvesAcrossTheBorder) {
  const RandomLayer layer = MakeRandomLayer({.rows = 4, .cols = 16, .tokens = 32});
  Problem problem;
  problem.weights = layer.weights.view();
  problem.gram = layer.gram.view();
  problem.pattern = Pattern::PerRow(0.5);
  const SolveOptions options = {.iterations = 20, .swaps = true, .reconstruct = true};
  std::vector<SolveResult> results;
  for (const char* name : {"cuda:1", "reference"}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(SolveResult result,
                                  Solve(problem, options, **FindBackend(name), nullptr, nullptr));
    results.push_back(std::move(result));
  }
  EXPECT_EQ(results[0].mask, results[1].mask);
  EXPECT_EQ(results[0].reconstructed_loss, results[1].reconstructed_loss);
  // Errors too.
  EXPECT_THAT((*FindBackend("cuda"))->CreateGramAccumulator(0, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH", "d_in"));
}

}  // namespace
}  // namespace sparsefw
