// Checkpoints that must not be resumed from, and sinks that fail.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/src/solver/solve_run.h"
#include "gtest/gtest.h"
#include "sparsefw/sweep.h"
#include "tests/core/solver/memory_checkpoints.h"
#include "tests/core/solver/scripted_engine.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::ExpectSameResult;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MemorySink;
using ::sparsefw::testing::Random;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StatusIs;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    problem_.weights = layer_.weights.view();
    problem_.gram = layer_.gram.view();
    problem_.pattern = Pattern::PerRow(0.5);
    options_.alpha = 0.5;
    options_.iterations = 40;
    options_.report_every = 10;
  }

  absl::StatusOr<SolveResult> Solve(std::span<const std::byte> resume = {}) {
    return sparsefw::Solve(problem_, options_, *backend_, nullptr, &stop_, {&sink_, resume});
  }
  std::vector<std::byte> FirstCheckpoint() {
    SPARSEFW_EXPECT_OK(Solve());
    EXPECT_FALSE(sink_.checkpoints.empty());
    return std::exchange(sink_.checkpoints, {}).front();
  }
  void ExpectRefused(std::span<const std::byte> bytes, const std::string& message) {
    EXPECT_THAT(Solve(bytes).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID", message));
  }

  RandomLayer layer_ = MakeRandomLayer({.rows = 12, .cols = 20, .seed = 2});
  Problem problem_;
  SolveOptions options_;
  const Backend* backend_ = *FindBackend("cpu");
  StopSignal stop_;
  MemorySink sink_;
};

TEST_F(CheckpointTest, EveryFlippedByteIsSeen) {
  const std::vector<std::byte> good = FirstCheckpoint();
  SPARSEFW_EXPECT_OK(Solve(good));
  for (size_t i = 0; i < good.size(); i += i < 64 || i + 64 > good.size() ? 1 : 7) {
    SCOPED_TRACE(i);
    std::vector<std::byte> bad = good;
    bad[i] ^= std::byte{0x10};
    ExpectRefused(bad, "a checkpoint must");
  }
}

TEST_F(CheckpointTest, EveryTruncationIsSeen) {
  const std::vector<std::byte> good = FirstCheckpoint();
  Random random(4);
  for (size_t size = 1; size < 64; ++size)
    ExpectRefused(std::span(good).first(size), "a checkpoint must");
  for (int i = 0; i < 200; ++i) {
    const auto size = static_cast<size_t>(random.Below(static_cast<int64_t>(good.size()) - 1)) + 1;
    SCOPED_TRACE(size);
    ExpectRefused(std::span(good).first(size), "a checkpoint must");
  }
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  ExpectRefused(longer, "cut off");
}

TEST_F(CheckpointTest, OtherOptionsAreRefused) {
  const std::vector<std::byte> good = FirstCheckpoint();
  const SolveOptions options = options_;
  const Problem problem = problem_;
  const Mask warm = *TopScores(layer_.weights.view(), problem.pattern);
  const Matrix<float> saliency(12, 20);
  const Matrix<float> float_gram(20, 20);
  const std::vector<std::pair<std::string, std::function<void()>>> changes = {
      {"shrinkage=", [&] { options_.shrinkage = 0.1; }},
      {"alpha=", [&] { options_.alpha = 0.5000000000000001; }},
      {"iterations=", [&] { options_.iterations = 41; }},
      {"step_rule=", [&] { options_.step_rule = StepRule::kLineSearch; }},
      {"rel_gap=", [&] { options_.rel_gap = 1e-9; }},
      {"report_every=", [&] { options_.report_every = 20; }},
      {"swaps=", [&] { options_.swaps = true; }},
      {"keep_fixed=", [&] { options_.keep_fixed = false; }},
      {"reconstruct=", [&] { options_.reconstruct = true; }},
      {"warm_start_method=", [&] { options_.warm_start.method = SaliencyMethod::kMagnitude; }},
      {"ria_exponent=", [&] { options_.warm_start.ria_exponent = 0.25; }},
      {"method=", [&] { options_.method = Method::kWanda; }},
      {"product_precision=", [&] { options_.product_precision = ProductPrecision::kBf16; }},
      {"sparsity=", [&] { problem_.pattern = Pattern::PerRow(0.55); }},
      {"pattern=", [&] { problem_.pattern = Pattern::Unstructured(0.5); }},
      {"rows=", [&] { problem_.weights = layer_.weights.view().Rows(0, 11); }},
      {"gram=", [&] { problem_.gram = float_gram.view(); }},
      {"own_saliency=", [&] { problem_.saliency = saliency.view(); }},
      {"own_warm_mask=", [&] { problem_.warm_mask = &warm; }},
  };
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    change();
    ExpectRefused(good, name);
    options_ = options;
    problem_ = problem;
  }
  // These change no bit of the result.
  options_.threads = 1;
  options_.deadline = absl::Now() + absl::Hours(1);
  SPARSEFW_EXPECT_OK(Solve(good));
}

TEST_F(CheckpointTest, OtherInputsAreRefused) {
  const std::vector<std::byte> good = FirstCheckpoint();
  const float weight = std::exchange(layer_.weights(3, 4), 0.77F);
  ExpectRefused(good, "loss");
  layer_.weights(3, 4) = weight;
  layer_.gram(5, 5) *= 1.001;
  ExpectRefused(good, "loss");
}

// The losses are the same: they depend on the warm start alone.
TEST_F(CheckpointTest, AnotherSaliencyIsRefused) {
  const Mask warm = *TopScores(layer_.weights.view(), problem_.pattern);
  Matrix<float> saliency(12, 20);
  std::copy_n(layer_.weights.data(), saliency.size(), saliency.data());
  problem_.warm_mask = &warm;
  problem_.saliency = saliency.view();
  const std::vector<std::byte> good = FirstCheckpoint();
  SPARSEFW_EXPECT_OK(Solve(good));
  for (float& score : saliency.span()) score = -score;
  ExpectRefused(good, "saliency");
  // With nothing fixed it decides ties of rounding all the same.
  sink_.checkpoints.clear();
  options_.alpha = 0;
  const std::vector<std::byte> unfixed = FirstCheckpoint();
  SPARSEFW_EXPECT_OK(Solve(unfixed));
  for (float& score : saliency.span()) score = -score;
  ExpectRefused(unfixed, "saliency");
}

TEST_F(CheckpointTest, AnotherEngineIsRefused) {
  const std::vector<std::byte> good = FirstCheckpoint();
  backend_ = *FindBackend("reference");
  ExpectRefused(good, "engine=reference");
}

TEST_F(CheckpointTest, SparseGptHasNone) {
  options_.method = Method::kSparseGpt;
  options_.reconstruct = true;
  SPARSEFW_EXPECT_OK(Solve());
  EXPECT_TRUE(sink_.asked.empty());
}

TEST_F(CheckpointTest, ASinkThatIsNotDueGetsNone) {
  sink_.due = false;
  SPARSEFW_EXPECT_OK(Solve());
  EXPECT_EQ(sink_.asked.size(), 3);
  EXPECT_TRUE(sink_.infos.empty());
}

TEST_F(CheckpointTest, SaysWhereTheSolveIs) {
  options_.swaps = true;
  SPARSEFW_EXPECT_OK(Solve());
  ASSERT_EQ(sink_.infos.size(), 4);
  EXPECT_EQ(sink_.infos[0].iteration, 10);
  EXPECT_EQ(sink_.infos[2].iteration, 30);
  EXPECT_EQ(sink_.infos[3].iteration, 40);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sink_.infos[i].stage, i < 3 ? 0 : 1);
    const std::optional<CheckpointInfo> peeked = PeekCheckpoint(sink_.checkpoints[i]);
    ASSERT_TRUE(peeked.has_value());
    EXPECT_EQ(peeked->iteration, sink_.infos[i].iteration);
    EXPECT_EQ(peeked->stage, sink_.infos[i].stage);
  }
}

TEST_F(CheckpointTest, NothingIsSeenOfWhatIsNone) {
  const std::vector<std::byte> whole = FirstCheckpoint();
  for (const size_t size : {size_t{0}, size_t{20}, whole.size() - 1}) {
    EXPECT_FALSE(PeekCheckpoint(std::span(whole).first(size)).has_value()) << size;
  }
  EXPECT_FALSE(PeekCheckpoint(std::vector<std::byte>(500)).has_value());
}

// The call that fails, and how many calls of its kind are right before it.
TEST_F(CheckpointTest, AFailingSinkCostsTheSolveNothing) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult expected, Solve());
  for (const std::string call : {"begin", "write", "commit"}) {
    for (int right = 0; right < (call == "write" ? 30 : 2); ++right) {
      SCOPED_TRACE(call + std::to_string(right));
      sink_ = MemorySink();
      sink_.fail = [&, count = 0](const std::string& name) mutable {
        return name == call && count++ >= right ? absl::ResourceExhaustedError("full")
                                                : absl::OkStatus();
      };
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Solve());
      ExpectSameResult(expected, result);
      EXPECT_GT(sink_.abandoned, 0);
      EXPECT_EQ(sink_.abandoned + static_cast<int>(sink_.checkpoints.size()), 3);
      const auto complete = std::exchange(sink_.checkpoints, {});
      for (const auto& checkpoint : complete) SPARSEFW_EXPECT_OK(Solve(checkpoint));
    }
  }
}

TEST_F(CheckpointTest, AStopWhileOneIsWrittenAbandonsIt) {
  sink_.fail = [this](const char*) {
    stop_.Request();
    return absl::OkStatus();
  };
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Solve());
  EXPECT_EQ(result.stop_cause, StopCause::kCancelled);
  EXPECT_EQ(sink_.abandoned, 1);
  EXPECT_TRUE(sink_.checkpoints.empty());
}

// On an engine without checkpoints and with a clock of the test's.
class ScriptedCheckpointTest : public testing::ScriptedSolveTest {
 protected:
  // One step a second.
  ScriptedCheckpointTest() { script_.step_duration = absl::Seconds(1); }
  absl::StatusOr<SolveResult> RunWith(const Backend& backend, const Checkpoints& checkpoints) {
    LayerCache cache;
    return sparsefw::RunSolve({.problem = problem_,
                               .options = options_,
                               .backend = backend,
                               .cache = cache,
                               .observer = &observer_,
                               .stop = &script_.stop,
                               .now = [this] { return script_.now; },
                               .checkpoints = checkpoints});
  }
  MemorySink sink_;
};

TEST_F(ScriptedCheckpointTest, AnEngineWithoutThemIsNotAsked) {
  SPARSEFW_EXPECT_OK(RunWith(backend_, {&sink_, {}}));
  EXPECT_TRUE(sink_.asked.empty());
  const std::vector<std::byte> some(100);
  EXPECT_THAT(RunWith(backend_, {nullptr, some}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID", "scripted"));
}

// A scripted engine that saves nothing but its name.
class SavingEngine final : public Engine {
 public:
  SavingEngine(std::unique_ptr<Engine> engine, absl::Status status)
      : engine_(std::move(engine)), status_(std::move(status)) {}
  absl::Status Load(const EngineProblem& problem) override { return engine_->Load(problem); }
  absl::StatusOr<StepStats> Step(const StepRequest& r) override { return engine_->Step(r); }
  absl::StatusOr<RoundedMask> Round() override { return engine_->Round(); }
  absl::StatusOr<double> Loss(const Mask& mask) override { return engine_->Loss(mask); }
  absl::StatusOr<RefinedMask> Refine(const Mask& mask, const RefineRequest& r) override {
    return engine_->Refine(mask, r);
  }
  absl::StatusOr<Matrix<float>> Reconstruct(const Mask& mask,
                                            const ReconstructRequest& r) override {
    return engine_->Reconstruct(mask, r);
  }
  absl::StatusOr<double> LossOfWeights(const Matrix<float>& w) override {
    return engine_->LossOfWeights(w);
  }
  absl::Status SaveIteration(StateWriter& writer) override {
    SPARSEFW_RETURN_IF_ERROR(status_);
    return writer.Field("name", std::as_bytes(std::span("scripted")));
  }
  absl::Status RestoreIteration(StateReader& reader) override {
    return reader.AnyField("name").status();
  }

 private:
  std::unique_ptr<Engine> engine_;
  const absl::Status status_;
};

class SavingBackend final : public Backend {
 public:
  explicit SavingBackend(const Backend& backend) : backend_(backend) {}
  std::string_view name() const override { return backend_.name(); }
  DeviceDescription Describe() const override { return {}; }
  std::string checkpoint_tag() const override { return tag; }
  absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& o) const override {
    SPARSEFW_ASSIGN_OR_RETURN(auto engine, backend_.CreateEngine(o));
    return std::make_unique<SavingEngine>(std::move(engine), save);
  }
  absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(int64_t,
                                                                         int) const override {
    return absl::UnimplementedError("not scripted");
  }
  int64_t EstimateHostBytes(int64_t, int64_t, const MemoryRequest&) const override { return 0; }

  std::string tag = "scripted 1";
  absl::Status save;

 private:
  const Backend& backend_;
};

TEST_F(ScriptedCheckpointTest, IsAskedForTheTimeSinceTheLastOne) {
  const SavingBackend saving(backend_);
  options_.iterations = 500;
  sink_.fail = [this](const char* call) {
    if (std::string(call) == "commit") script_.now += absl::Seconds(7);
    return absl::OkStatus();
  };
  SPARSEFW_EXPECT_OK(RunWith(saving, {&sink_, {}}));
  ASSERT_EQ(sink_.asked.size(), 4);
  for (size_t i = 0; i < sink_.asked.size(); ++i) {
    EXPECT_EQ(sink_.asked[i].since_last, absl::Seconds(100));
    EXPECT_EQ(sink_.asked[i].last_took, absl::Seconds(i == 0 ? 0 : 7));
  }
}

TEST(DueEveryTest, IsAHundredthOfTheTimeAtMost) {
  const absl::Duration period = absl::Seconds(30);
  EXPECT_FALSE(DueEvery(period, {absl::Seconds(29), absl::ZeroDuration()}));
  EXPECT_TRUE(DueEvery(period, {absl::Seconds(30), absl::ZeroDuration()}));
  EXPECT_TRUE(DueEvery(period, {absl::Seconds(30), absl::Milliseconds(300)}));
  EXPECT_FALSE(DueEvery(period, {absl::Seconds(69), absl::Milliseconds(700)}));
  EXPECT_TRUE(DueEvery(period, {absl::Seconds(70), absl::Milliseconds(700)}));
}

TEST_F(ScriptedCheckpointTest, AnotherVersionOfTheEngineIsRefused) {
  SavingBackend saving(backend_);
  SPARSEFW_EXPECT_OK(RunWith(saving, {&sink_, {}}));
  ASSERT_FALSE(sink_.checkpoints.empty());
  const auto checkpoint = sink_.checkpoints.front();
  saving.tag = "scripted 2";
  EXPECT_THAT(
      RunWith(saving, {nullptr, checkpoint}).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID", "engine=scripted 2"));
}

TEST_F(ScriptedCheckpointTest, AnEngineThatFailsToSaveFailsTheSolve) {
  SavingBackend saving(backend_);
  saving.save = absl::InternalError("the device is lost");
  EXPECT_EQ(RunWith(saving, {&sink_, {}}).status(), saving.save);
  EXPECT_EQ(sink_.abandoned, 1);
}

}  // namespace
}  // namespace sparsefw
