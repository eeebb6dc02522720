// Screened iterations are the unscreened ones: the same vertices, ties included.
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/backend.h"
#include "sparsefw/iteration_state.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::LoadedEngine;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::NameOf;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StartingPoint;

class MemoryWriter final : public StateWriter {
 public:
  absl::Status Write(std::span<const std::byte> piece) override {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return absl::OkStatus();
  }
  std::vector<std::byte> bytes;
};

std::vector<std::byte> StateOf(Engine& engine) {
  MemoryWriter writer;
  SPARSEFW_EXPECT_OK(engine.SaveIteration(writer));
  return std::move(writer.bytes);
}

// V_t, the vertex chosen at the iterate where the engine stands.
std::vector<std::byte> VertexOf(Engine& engine) {
  const std::vector<std::byte> state = StateOf(engine);
  StateReader reader(state);
  for (const char* name : {"cpu_scalars", "entries", "scales", "last_vertex"}) {
    SPARSEFW_EXPECT_OK(reader.AnyField(name));
  }
  const auto vertex = reader.AnyField("vertex");
  SPARSEFW_EXPECT_OK(vertex);
  return {vertex->begin(), vertex->end()};
}

enum class Inputs { kRandom, kCorrelated, kDegenerate, kTied };

std::string NameOfInputs(Inputs inputs) {
  switch (inputs) {
    case Inputs::kRandom:
      return "random";
    case Inputs::kCorrelated:
      return "correlated";
    case Inputs::kDegenerate:
      return "degenerate";
    default:
      return "tied";
  }
}

void CopyColumn(RandomLayer& layer, int64_t from, int64_t to) {
  for (int64_t row = 0; row < layer.weights.rows(); ++row) {
    layer.weights(row, to) = layer.weights(row, from);
  }
  for (int64_t k = 0; k < layer.gram.rows(); ++k) layer.gram(k, to) = layer.gram(k, from);
  for (int64_t k = 0; k < layer.gram.rows(); ++k) layer.gram(to, k) = layer.gram(from, k);
}

RandomLayer MakeInputs(Inputs inputs, int64_t rows, int64_t cols) {
  RandomLayer layer = MakeRandomLayer({.rows = rows,
                                       .cols = cols,
                                       .correlation = inputs == Inputs::kRandom ? 0.2 : 0.9,
                                       .dead_columns = inputs == Inputs::kDegenerate ? 5 : 0,
                                       .seed = 11});
  if (inputs == Inputs::kDegenerate) {
    for (int64_t col = 0; col < cols; ++col) layer.weights(1, col) = 0;
    for (int64_t row = 0; row < rows; row += 2) layer.weights(row, 7) = 0;
    CopyColumn(layer, 3, 20);
    CopyColumn(layer, 3, 41);
  }
  if (inputs == Inputs::kTied) {
    // Every column four times: thresholds tie all the time.
    for (int64_t col = 0; col < cols; ++col) CopyColumn(layer, col % (cols / 4), col);
  }
  return layer;
}

using Param = std::tuple<Inputs, Pattern, StepRule, double>;

std::string NameOfParam(const Param& param) {
  const auto& [inputs, pattern, rule, alpha] = param;
  return NameOfInputs(inputs) + "_" + NameOf(pattern) + "_" + std::string(NameOf(rule)) +
         "_alpha_" + std::to_string(static_cast<int>(alpha * 100));
}

class ScreeningTest : public ::testing::TestWithParam<Param> {
 protected:
  static constexpr int64_t kRows = 20;
  static constexpr int64_t kCols = 72;

  void SetUp() override {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        start_, MakeStartingPoint(layer_.weights.view(), layer_.gram.view(),
                                  std::get<Pattern>(GetParam()), {}, std::get<double>(GetParam())));
  }
  std::unique_ptr<Engine> NewEngine(Screening screening, Precision precision, int threads = 1) {
    auto engine = LoadedEngine(
        *FindBackend("cpu").value(), start_,
        {.threads = threads, .precision = precision, .tuning = {.screening = screening}});
    SPARSEFW_EXPECT_OK(engine);
    return *std::move(engine);
  }
  StepRule rule() const { return std::get<StepRule>(GetParam()); }
  StepStats Step(Engine& engine, int64_t count) {
    const auto stats = engine.Step({.count = count, .rule = rule()});
    SPARSEFW_EXPECT_OK(stats);
    return *stats;
  }

  const RandomLayer layer_ = MakeInputs(std::get<Inputs>(GetParam()), kRows, kCols);
  StartingPoint start_;
};

TEST_P(ScreeningTest, SameVertexAfterEveryIterationInFloat64) {
  const auto plain = NewEngine(Screening::kNever, Precision::kFloat64);
  const auto screened = NewEngine(Screening::kAlways, Precision::kFloat64);
  StepStats stats;
  for (int64_t t = 0; t <= 260; ++t) {
    const StepStats expected = Step(*plain, t == 0 ? 0 : 1);
    stats = Step(*screened, t == 0 ? 0 : 1);
    ASSERT_EQ(VertexOf(*screened), VertexOf(*plain)) << "iteration " << t;
    ASSERT_EQ(stats.toggled, expected.toggled) << "iteration " << t;
    const double size = expected.relaxed_loss + 1e-300;
    ASSERT_NEAR(stats.relaxed_loss / size, expected.relaxed_loss / size, 1e-9) << t;
    ASSERT_NEAR(stats.gap / size, expected.gap / size, 1e-8) << "iteration " << t;
    ASSERT_NEAR(stats.lower_bound / size, expected.lower_bound / size, 1e-8) << t;
    if (expected.gap < 1e-9 * size) break;  // rounding decides from here on
  }
  if (stats.iteration == 260) {
    EXPECT_GT(stats.engine.screening.iterations, 100);
  }
  const auto mask = plain->Round();
  const auto screened_mask = screened->Round();
  SPARSEFW_ASSERT_OK(mask);
  SPARSEFW_ASSERT_OK(screened_mask);
  EXPECT_EQ(screened_mask->mask, mask->mask);
}

// Rows with budgets of their own take a batch one after the other; all toggles on the way count.
TEST_P(ScreeningTest, SameVertexAndTogglesInBatchesInFloat64) {
  const auto plain = NewEngine(Screening::kNever, Precision::kFloat64);
  const auto screened = NewEngine(Screening::kAlways, Precision::kFloat64, 2);
  for (const int64_t count : {1, 40, 7, 100, 23, 64}) {
    const StepStats expected = Step(*plain, count);
    const StepStats stats = Step(*screened, count);
    if (expected.gap < 1e-9 * expected.relaxed_loss) break;  // rounding decides from here on
    ASSERT_EQ(VertexOf(*screened), VertexOf(*plain)) << "iteration " << stats.iteration;
    ASSERT_EQ(stats.toggled, expected.toggled) << "iteration " << stats.iteration;
    ASSERT_NEAR(stats.lower_bound / expected.relaxed_loss,
                expected.lower_bound / expected.relaxed_loss, 1e-8);
  }
}

// Runs of many iterations and single ones, for line search and the gap stop, in one epoch.
TEST_P(ScreeningTest, SameVertexWhereStepRulesChange) {
  const auto plain = NewEngine(Screening::kNever, Precision::kFloat64);
  const auto screened = NewEngine(Screening::kAlways, Precision::kFloat64);
  for (const StepRequest& request :
       {StepRequest{.count = 30}, StepRequest{.count = 5, .rule = StepRule::kLineSearch},
        StepRequest{.count = 12}, StepRequest{.count = 5, .rel_gap = 1e-12},
        StepRequest{.count = 12}}) {
    const auto expected = plain->Step(request);
    const auto stats = screened->Step(request);
    SPARSEFW_ASSERT_OK(expected);
    SPARSEFW_ASSERT_OK(stats);
    if (expected->gap < 1e-9 * expected->relaxed_loss) return;  // rounding decides from here on
    ASSERT_EQ(VertexOf(*screened), VertexOf(*plain)) << "iteration " << stats->iteration;
    ASSERT_EQ(stats->toggled, expected->toggled) << "iteration " << stats->iteration;
  }
}

TEST_P(ScreeningTest, SameLossInFloat32) {
  const auto plain = NewEngine(Screening::kNever, Precision::kFloat64);
  const auto screened = NewEngine(Screening::kAlways, Precision::kFloat32);
  const StepStats expected = Step(*plain, 700);
  const StepStats stats = Step(*screened, 700);
  // Where nothing is fixed, so small a layer takes another path in float32 (docs/numerics.md).
  const double tolerance = std::get<double>(GetParam()) == 0 ? 3e-3 : 1e-4;
  EXPECT_NEAR(stats.relaxed_loss / expected.relaxed_loss, 1, tolerance);
  EXPECT_LE(stats.lower_bound, expected.relaxed_loss * (1 + 1e-5));
  const auto drift = screened->Step({.count = 0, .rule = rule(), .measure_drift = true});
  SPARSEFW_ASSERT_OK(drift);
  EXPECT_LT(drift->drift, 1e-3);
}

TEST_P(ScreeningTest, SameBitsForAnyThreadsAndBatches) {
  const auto run = [&](int threads, const std::vector<int64_t>& batches) {
    const auto engine = NewEngine(Screening::kAlways, Precision::kFloat32, threads);
    for (const int64_t count : batches) Step(*engine, count);
    return StateOf(*engine);
  };
  const std::vector<std::byte> once = run(1, {170});
  EXPECT_EQ(run(1, {170}), once);
  EXPECT_EQ(run(2, {170}), once);
  EXPECT_EQ(run(3, {1, 40, 59, 3, 67}), once);
}

TEST_P(ScreeningTest, GoesOnFromACheckpointInsideAnEpoch) {
  const auto engine = NewEngine(Screening::kAlways, Precision::kFloat32);
  Step(*engine, 77);
  const std::vector<std::byte> saved = StateOf(*engine);
  const auto restored = NewEngine(Screening::kAlways, Precision::kFloat32, 2);
  StateReader reader(saved);
  SPARSEFW_ASSERT_OK(restored->RestoreIteration(reader));
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(StateOf(*restored), saved);
  for (const int64_t count : {1, 30, 110}) {
    Step(*engine, count);
    Step(*restored, count);
    EXPECT_EQ(StateOf(*restored), StateOf(*engine)) << "after " << count;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ScreeningTest,
    ::testing::Combine(::testing::Values(Inputs::kRandom, Inputs::kCorrelated, Inputs::kDegenerate,
                                         Inputs::kTied),
                       ::testing::Values(Pattern::Unstructured(0.6), Pattern::PerRow(0.6),
                                         Pattern::KeepOfGroup(2, 4)),
                       ::testing::Values(StepRule::kOpenLoop, StepRule::kLineSearch),
                       ::testing::Values(0.0, 0.5, 0.9, 1.0)),
    [](const auto& test) { return NameOfParam(test.param); });

}  // namespace
}  // namespace sparsefw
