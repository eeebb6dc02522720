// The registry, and what backends say about themselves.
#include "sparsefw/backend.h"

#include <malloc.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::LoadedEngine;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StartingPoint;
using ::sparsefw::testing::StatusIs;

// Before anything asks the registry; cuda_registry_test has devices.
const int g_no_cuda = setenv("SPARSEFW_CUDA_MODULE", "none", 1);

TEST(RegistryTest, PrefersTheFastestAndListsTheReferenceLast) {
  ASSERT_EQ(g_no_cuda, 0);
  ASSERT_EQ(Backends().size(), 2U);
  EXPECT_EQ(Backends().front()->name(), "cpu");
  EXPECT_EQ(Backends().back()->name(), "reference");
}

TEST(RegistryTest, FindsByName) {
  for (const Backend* backend : Backends()) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* found, FindBackend(backend->name()));
    EXPECT_EQ(found, backend);
  }
}

TEST(RegistryTest, SaysWhatThereIsInsteadAndWhyThereIsNoCuda) {
  for (const std::string name : {"cuda", "cuda:0"}) {
    const absl::Status status = FindBackend(name).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, "DEVICE_UNAVAILABLE"));
    EXPECT_EQ(std::string(status.message()),
              "device must be one of cpu, reference; got " + name +
                  ", and there is no CUDA device: SPARSEFW_CUDA_MODULE=none turns CUDA off");
  }
  for (const std::string name : {"tpu", "cpu:7", ""}) {
    EXPECT_EQ(std::string(FindBackend(name).status().message()),
              "device must be one of cpu, reference; got " + name);
  }
}

TEST(RegistryTest, TellsWhetherThereIsCuda) {
  const std::vector<DeviceProbe> probes = ProbeDevices();
  ASSERT_EQ(probes.size(), 1U);
  EXPECT_EQ(probes[0].name, "cuda");
  EXPECT_FALSE(probes[0].available);
  EXPECT_EQ(probes[0].reason, "SPARSEFW_CUDA_MODULE=none turns CUDA off");
}

TEST(CpuBackendTest, DescribesTheMachine) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* cpu, FindBackend("cpu"));
  const DeviceDescription description = cpu->Describe();
  EXPECT_EQ(description.name, "cpu");
  EXPECT_THAT(description.description, ::testing::ContainsRegex(".+, [0-9]+ threads?, .+"));
  EXPECT_GT(description.memory_bytes, int64_t{64} << 20);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const int64_t free_bytes, cpu->FreeMemoryBytes());
  EXPECT_GT(free_bytes, 0);
  EXPECT_LE(free_bytes, description.memory_bytes);
}

TEST(CpuBackendTest, RefusesANegativeNumberOfThreads) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* cpu, FindBackend("cpu"));
  EXPECT_THAT(cpu->CreateEngine({.threads = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID", "threads=-1"));
}

TEST(CpuBackendTest, MakesGramAccumulators) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* cpu, FindBackend("cpu"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto gram, cpu->CreateGramAccumulator(7, 1));
  EXPECT_EQ(gram->d_in(), 7);
}

TEST(CpuBackendTest, EstimatesDoNotOverflow) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* cpu, FindBackend("cpu"));
  const int64_t bytes = cpu->EstimateHostBytes(128 * 1024, 64 * 1024, {});
  EXPECT_GT(bytes, int64_t{128} << 30);
  EXPECT_LT(bytes, int64_t{1} << 40);
}

int64_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd) + LargeBlockBytes();
}

// The memory of an engine between steps is at most the estimate, and not far
// below it: the rest is the scratch of dense products and losses.
TEST(CpuBackendTest, EstimateIsNearWhatIsHeld) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's allocator does not count";
#endif
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* cpu, FindBackend("cpu"));
  struct Shape {
    int64_t rows;
    int64_t cols;
  };
  for (const Shape& shape : {Shape{512, 512}, Shape{4200, 256}}) {
    const RandomLayer layer =
        MakeRandomLayer({.rows = shape.rows, .cols = shape.cols, .tokens = 64});
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StartingPoint start,
                                  MakeStartingPoint(layer.weights.view(), layer.gram.view(),
                                                    Pattern::Unstructured(0.6), {}, 0.5));
    const int64_t before = AllocatedBytes();
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(*cpu, start, {.threads = 2}));
    SPARSEFW_ASSERT_OK(engine->Step({.count = 5}));
    const int64_t held = AllocatedBytes() - before;
    const int64_t estimate = cpu->EstimateHostBytes(shape.rows, shape.cols, {});
    EXPECT_LE(held, estimate);
    EXPECT_LE(estimate, 4 * held);
  }
}

// Screened iterations with one budget, where rows keep what they gathered: the most that an
// engine holds.
TEST(CpuBackendTest, EstimateIsAboveWhatAnEpochHolds) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's allocator does not count";
#endif
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* cpu, FindBackend("cpu"));
  const RandomLayer layer = MakeRandomLayer({.rows = 1100, .cols = 1024, .tokens = 2048});
  const int64_t estimate = cpu->EstimateHostBytes(1100, 1024, {});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StartingPoint start,
                                MakeStartingPoint(layer.weights.view(), layer.gram.view(),
                                                  Pattern::Unstructured(0.6), {}, 0.9));
  const int64_t before = AllocatedBytes();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(*cpu, start, {.threads = 2}));
  int64_t screened = 0;
  int64_t held = 0;
  for (int i = 0; i < 60; ++i) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats, engine->Step({.count = 10}));
    screened += stats.engine.screening.iterations;
    held = std::max(held, AllocatedBytes() - before);
  }
  EXPECT_GT(screened, 0);
  EXPECT_LE(held, estimate);
  EXPECT_LE(estimate, 2 * held);
}

// A sweep keeps its copy of G for the next point, and needs room for the scores of that point.
TEST(CpuBackendTest, SweepsKeepTheirGram) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's allocator does not count";
#endif
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* cpu, FindBackend("cpu"));
  const RandomLayer layer = MakeRandomLayer({.rows = 1100, .cols = 1024, .tokens = 64});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StartingPoint start,
                                MakeStartingPoint(layer.weights.view(), layer.gram.view(),
                                                  Pattern::Unstructured(0.6), {}, 0.99));
  EngineProblem problem = start.problem();
  problem.reused = true;
  const int64_t before = AllocatedBytes();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, cpu->CreateEngine({.threads = 1}));
  SPARSEFW_ASSERT_OK(engine->Load(problem));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats first, engine->Step({.count = 5}));
  const int64_t held = AllocatedBytes() - before;
  const int64_t estimate = cpu->EstimateHostBytes(1100, 1024, {.sweep = true});
  EXPECT_LE(held, estimate);
  EXPECT_EQ(estimate - cpu->EstimateHostBytes(1100, 1024, {}), 4 * 1100 * 1024);
  SPARSEFW_ASSERT_OK(engine->Load(problem));
  EXPECT_GE(AllocatedBytes() - before, 4 * 1024 * 1024) << "G";
  EXPECT_LT(AllocatedBytes() - before, 4 * (1100 + 1024) * 1024) << "W is not copied";
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats second, engine->Step({.count = 5}));
  EXPECT_EQ(second.relaxed_loss, first.relaxed_loss);
  EXPECT_LE(AllocatedBytes() - before, held + held / 50);
  // Nothing is kept where no other start follows.
  problem.reused = false;
  SPARSEFW_ASSERT_OK(engine->Load(problem));
  SPARSEFW_ASSERT_OK(engine->Step({.count = 5}));
  EXPECT_LE(AllocatedBytes() - before, cpu->EstimateHostBytes(1100, 1024, {}));
}

// The same while swaps and reconstruction run, seen from where they ask for
// the time that is left.
TEST(CpuBackendTest, EstimateIsNearWhatSwapsAndReconstructionHold) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's allocator does not count";
#endif
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* cpu, FindBackend("cpu"));
  const RandomLayer layer = MakeRandomLayer({.rows = 1100, .cols = 1024, .tokens = 64});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const StartingPoint start,
                                MakeStartingPoint(layer.weights.view(), layer.gram.view(),
                                                  Pattern::Unstructured(0.6), {}, 0.99));
  const int64_t before = AllocatedBytes();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(*cpu, start, {.threads = 1}));
  int64_t held = 0;
  const auto look = [&] {
    held = std::max(held, AllocatedBytes() - before);
    return false;
  };
  SPARSEFW_ASSERT_OK(engine->Refine(start.warm, {.out_of_time = look}));
  const int64_t swaps = cpu->EstimateHostBytes(1100, 1024, {.swaps = true});
  EXPECT_GT(held, 0);
  EXPECT_LE(held, swaps);
  EXPECT_LE(swaps, 6 * held);  // an epoch of screened iterations may hold more
  held = 0;
  SPARSEFW_ASSERT_OK(engine->Reconstruct(start.warm, {.out_of_time = look}));
  const int64_t reconstruct = cpu->EstimateHostBytes(1100, 1024, {.reconstruct = true});
  EXPECT_GT(held, 0);
  EXPECT_LE(held, reconstruct);
  EXPECT_LE(reconstruct, 5 * held);
  // Stages follow one another.
  EXPECT_EQ(cpu->EstimateHostBytes(1100, 1024, {.swaps = true, .reconstruct = true}),
            std::max(swaps, reconstruct));
  EXPECT_GE(reconstruct, cpu->EstimateHostBytes(1100, 1024, {}));
}

}  // namespace
}  // namespace sparsefw
