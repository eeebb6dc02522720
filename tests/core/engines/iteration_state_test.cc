// An engine that was restored is the engine that was saved: it takes the same
// steps, and what it saves later is the same, byte for byte.
#include "sparsefw/iteration_state.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::EngineKind;
using ::sparsefw::testing::IsCuda;
using ::sparsefw::testing::LoadedEngine;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::NameOf;
using ::sparsefw::testing::StatusIs;

class MemoryWriter final : public StateWriter {
 public:
  absl::Status Write(std::span<const std::byte> piece) override {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return fail_after-- == 0 ? absl::ResourceExhaustedError("full") : absl::OkStatus();
  }
  std::vector<std::byte> bytes;
  int fail_after = -1;
};

std::vector<std::byte> StateOf(Engine& engine) {
  MemoryWriter writer;
  SPARSEFW_EXPECT_OK(engine.SaveIteration(writer));
  return std::move(writer.bytes);
}

void ExpectSameStats(const StepStats& a, const StepStats& b) {
  EXPECT_EQ(a.iteration, b.iteration);
  EXPECT_EQ(a.relaxed_loss, b.relaxed_loss);
  EXPECT_EQ(a.gap, b.gap);
  EXPECT_EQ(a.step_size, b.step_size);
  EXPECT_EQ(a.lower_bound, b.lower_bound);
  EXPECT_EQ(a.toggled, b.toggled);
  EXPECT_EQ(a.drift, b.drift);
}

using Param = std::tuple<EngineKind, Pattern, StepRule, double>;
class IterationStateTest : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override { SPARSEFW_NEED_DEVICE(std::get<0>(GetParam())); }
};

std::string NameOfParam(const Param& param) {
  const auto& [kind, pattern, rule, alpha] = param;
  return NameOf(kind) + "_" + NameOf(pattern) + "_" + std::string(NameOf(rule)) +
         (alpha == 0 ? "_alpha_0" : "_alpha_09");
}

INSTANTIATE_TEST_SUITE_P(
    All, IterationStateTest,
    ::testing::Combine(::testing::ValuesIn(testing::kAllEngines),
                       ::testing::Values(Pattern::Unstructured(0.6), Pattern::PerRow(0.6),
                                         Pattern::KeepOfGroup(2, 4)),
                       ::testing::Values(StepRule::kOpenLoop, StepRule::kLineSearch),
                       ::testing::Values(0.0, 0.9)),
    [](const auto& test) { return NameOfParam(test.param); });

// Saved after each of `counts` steps more; the restored engine goes on beside the
// other one to the end.
void ExpectRestoredIsSaved(EngineKind kind, const testing::StartingPoint& start, StepRule rule,
                           const std::vector<int64_t>& counts, const EngineOptions& options) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(kind, start, options));
  std::vector<std::unique_ptr<Engine>> restored;
  for (const int64_t count : counts) {
    SCOPED_TRACE(count);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats stats,
                                  engine->Step({.count = count, .rule = rule}));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine->Round());
    const std::vector<std::byte> state = StateOf(*engine);
    for (const auto& other : restored) {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats same,
                                    other->Step({.count = count, .rule = rule}));
      ExpectSameStats(stats, same);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask same_mask, other->Round());
      EXPECT_EQ(rounded.mask, same_mask.mask);
      EXPECT_EQ(rounded.threshold_residual, same_mask.threshold_residual);
      EXPECT_TRUE(StateOf(*other) == state) << "at iteration " << stats.iteration;
    }
    SPARSEFW_ASSERT_OK_AND_ASSIGN(auto next, LoadedEngine(kind, start, options));
    StateReader reader(state);
    SPARSEFW_ASSERT_OK(next->RestoreIteration(reader));
    EXPECT_TRUE(reader.at_end());
    EXPECT_TRUE(StateOf(*next) == state) << "right after it was restored";
    restored.push_back(std::move(next));
  }
}

TEST_P(IterationStateTest, RestoredIsSaved) {
  const auto& [kind, pattern, rule, alpha] = GetParam();
  const auto layer = MakeRandomLayer({.rows = 24, .cols = 36, .seed = 6});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const auto start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, alpha));
  // Counts of the CPU engine end right at its refreshes, before and after. The emulated device is
  // too slow for so many.
  std::vector<int64_t> counts = {1, 8, 31, 20};
  if (kind == EngineKind::kCpuFloat64 || kind == EngineKind::kCpuFloat32) {
    counts = {1, 8, 60, 331, 100, 30, 470, 40};
  }
  ExpectRestoredIsSaved(kind, start, rule, counts, {.threads = 2});
}

// E and U are computed anew every 500 iterations.
TEST(IterationStateFormTest, RestoredIsSavedAroundARefresh_cuda) {
  SPARSEFW_NEED_DEVICE(EngineKind::kCudaFloat64);
  const auto layer = MakeRandomLayer({.rows = 3, .cols = 20, .seed = 9});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto start,
                                MakeStartingPoint(layer.weights.view(), layer.gram.view(),
                                                  Pattern::Unstructured(0.6), {}, 0.5));
  ExpectRestoredIsSaved(EngineKind::kCudaFloat64, start, StepRule::kLineSearch, {490, 10, 1, 4},
                        {.threads = 1});
}

// The form in which U is updated follows from the epochs before.
TEST(IterationStateFormTest, UpdateFormsAreChosenAlike_cuda) {
  SPARSEFW_NEED_DEVICE(EngineKind::kCudaFloat32);
  const auto layer = MakeRandomLayer({.rows = 80, .cols = 130, .seed = 8});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const auto start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.6), {}, 0.5));
  ExpectRestoredIsSaved(EngineKind::kCudaFloat32, start, StepRule::kLineSearch, {5, 14, 30, 10},
                        {.threads = 1, .tuning = {.dense_share = 0.04}});
}

class IterationStateErrorTest : public ::testing::TestWithParam<EngineKind> {
 protected:
  void SetUp() override {
    SPARSEFW_NEED_DEVICE(GetParam());
    SPARSEFW_ASSERT_OK_AND_ASSIGN(start_,
                                  MakeStartingPoint(layer_.weights.view(), layer_.gram.view(),
                                                    Pattern::Unstructured(0.5), {}, 0.5));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(engine_, LoadedEngine(GetParam(), start_));
  }
  const testing::RandomLayer layer_ = MakeRandomLayer({.rows = 9, .cols = 20, .seed = 6});
  testing::StartingPoint start_;
  std::unique_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(All, IterationStateErrorTest, ::testing::ValuesIn(testing::kAllEngines),
                         [](const auto& test) { return NameOf(test.param); });

TEST_P(IterationStateErrorTest, AnErrorOfTheWriterIsHandedOn) {
  SPARSEFW_ASSERT_OK(engine_->Step({.count = 3}).status());
  for (int right = 0; right < 6; ++right) {
    MemoryWriter writer;
    writer.fail_after = right;
    EXPECT_EQ(engine_->SaveIteration(writer), absl::ResourceExhaustedError("full"));
  }
  SPARSEFW_EXPECT_OK(engine_->Step({.count = 3}).status());
}

TEST_P(IterationStateErrorTest, AStateThatIsCutOffOrOfAnotherLayerIsRefused) {
  SPARSEFW_ASSERT_OK(engine_->Step({.count = 3}).status());
  const std::vector<std::byte> state = StateOf(*engine_);
  for (size_t size = 0; size < state.size(); size += 1 + size / 4) {
    SCOPED_TRACE(size);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto other, LoadedEngine(GetParam(), start_));
    StateReader reader{std::span(state).first(size)};
    EXPECT_THAT(other->RestoreIteration(reader),
                StatusIs(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID", "field"));
  }
  const auto layer = MakeRandomLayer({.rows = 10, .cols = 90, .seed = 6});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto start,
                                MakeStartingPoint(layer.weights.view(), layer.gram.view(),
                                                  Pattern::Unstructured(0.5), {}, 0.5));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto other, LoadedEngine(GetParam(), start));
  StateReader reader(state);
  EXPECT_THAT(other->RestoreIteration(reader),
              StatusIs(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID", "bytes"));
}

// After a refresh the CPU engine forms E anew and sees whether it is the same. Screened iterations
// need none.
TEST(IterationStateRefreshTest, OtherInputsAreSeen) {
  for (const EngineKind kind : {EngineKind::kCpuFloat64, EngineKind::kCpuFloat32}) {
    auto layer = MakeRandomLayer({.rows = 9, .cols = 20, .seed = 6});
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto start,
                                  MakeStartingPoint(layer.weights.view(), layer.gram.view(),
                                                    Pattern::Unstructured(0.5), {}, 0.5));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const auto engine,
        LoadedEngine(kind, start, {.threads = 1, .tuning = {.screening = Screening::kNever}}));
    SPARSEFW_ASSERT_OK(engine->Step({.count = 500}).status());
    const std::vector<std::byte> at_refresh = StateOf(*engine);
    SPARSEFW_ASSERT_OK(engine->Step({.count = 1}).status());
    EXPECT_LT(at_refresh.size(), StateOf(*engine).size());  // without E and U
    layer.gram(3, 3) *= 1.001;
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const auto other,
        LoadedEngine(kind, start, {.threads = 1, .tuning = {.screening = Screening::kNever}}));
    StateReader reader(at_refresh);
    EXPECT_THAT(other->RestoreIteration(reader),
                StatusIs(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID", "loss"));
  }
}

}  // namespace
}  // namespace sparsefw
