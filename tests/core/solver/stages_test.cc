// Limits and single stages of a solve, on a scripted engine and clock.
#include <optional>

#include "core/src/solver/checkpoint_log.h"
#include "core/src/solver/limits.h"
#include "core/src/solver/solve_state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/solver/memory_checkpoints.h"
#include "tests/core/solver/scripted_engine.h"
#include "tests/testing/matchers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::MemorySink;
using ::sparsefw::testing::ScriptedEngine;
using ::sparsefw::testing::StatusIs;
using ::testing::ElementsAre;

class LimitsTest : public ::testing::Test {
 protected:
  Limits Make(absl::Duration until_deadline) {
    return Limits([this] { return now_; }, &stop_, now_ + until_deadline, loss_time_);
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  StopSignal stop_;
  absl::Duration loss_time_;
};

TEST_F(LimitsTest, WithoutAMaskStopAndDeadlineAreErrors) {
  const Limits limits = Make(absl::Seconds(5));
  SPARSEFW_EXPECT_OK(limits.CheckBeforeMask());
  EXPECT_FALSE(limits.past_deadline());
  now_ += absl::Seconds(5);
  EXPECT_TRUE(limits.past_deadline());
  EXPECT_THAT(limits.CheckBeforeMask(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  stop_.Request();
  EXPECT_TRUE(limits.stopped());
  EXPECT_THAT(limits.CheckBeforeMask(), StatusIs(absl::StatusCode::kCancelled, "CANCELLED"));
}

TEST_F(LimitsTest, TheSlowestLossOfTheLayerCounts) {
  Limits limits = Make(absl::Seconds(10));
  EXPECT_TRUE(limits.TimeForLosses(1000));
  for (const int seconds : {1, 2, 1}) limits.LossEnded(now_ - absl::Seconds(seconds));
  EXPECT_EQ(loss_time_, absl::Seconds(2));
  EXPECT_TRUE(limits.TimeForLosses(4));
  EXPECT_FALSE(limits.TimeForLosses(5));
  EXPECT_FALSE(Make(absl::Seconds(2)).TimeForLosses(1));  // another solve of the layer
}

TEST_F(LimitsTest, AStepNeedsTimeForItsMask) {
  Limits limits = Make(absl::Seconds(10));
  limits.LossEnded(now_ - absl::Seconds(3));
  limits.RoundingEnded(now_ - absl::Seconds(2));
  limits.RoundingEnded(now_ - absl::Seconds(1));
  EXPECT_TRUE(limits.TimeForStep());
  limits.StepsEnded(now_ - absl::Seconds(8), 2);
  EXPECT_TRUE(limits.TimeForStep());
  now_ += absl::Seconds(1);  // 9 s are left
  EXPECT_FALSE(limits.TimeForStep());
}

TEST_F(LimitsTest, ABatchTakesHalfOfTheTimeThatIsLeft) {
  Limits limits = Make(absl::Seconds(10));
  EXPECT_EQ(limits.StepsOfBatch(100), 1);  // nothing is known of them
  limits.LossEnded(now_ - absl::Seconds(1));
  limits.RoundingEnded(now_ - absl::Seconds(1));
  limits.StepsEnded(now_ - absl::Seconds(3), 3);
  EXPECT_EQ(limits.StepsOfBatch(100), 4);
  EXPECT_EQ(limits.StepsOfBatch(3), 3);
  now_ += absl::Seconds(9);
  EXPECT_EQ(limits.StepsOfBatch(100), 1);
}

TEST_F(LimitsTest, WithoutADeadlineABatchIsAsLongAsItIsToBe) {
  Limits limits = Make(absl::InfiniteDuration());
  EXPECT_EQ(limits.StepsOfBatch(100), 100);
  limits.StepsEnded(now_ - absl::Seconds(100), 1);
  EXPECT_EQ(limits.StepsOfBatch(100), 100);
}

TEST_F(LimitsTest, TimeAddsUpWithThatOfTheSolveBefore) {
  Limits limits = Make(absl::InfiniteDuration());
  now_ += absl::Seconds(3);
  EXPECT_EQ(limits.Elapsed(), absl::Seconds(3));
  limits.GoOnAfter(absl::Seconds(40));
  EXPECT_EQ(limits.Elapsed(), absl::Seconds(43));
}

// A stage between a state as the one before leaves it and what it makes of it.
class StagesTest : public ::sparsefw::testing::ScriptedSolveTest {
 protected:
  StagesTest() { options_.iterations = 250; }

  // The state after FindWarmStart, which the stage goes on with.
  SolveState& AfterWarmStart() {
    state_.emplace(context_);
    state_->engine = &engine_;
    state_->warm = state_->fixed = Mask(1, 20);
    for (int64_t col = 10; col < 20; ++col) state_->warm.Set(0, col, true);
    state_->last_tried = state_->result.mask = state_->warm;
    for (double* loss : {&state_->result.warm_start_loss, &state_->result.final_loss,
                         &state_->result.rounded_loss, &state_->stats.relaxed_loss}) {
      *loss = 100;
    }
    EngineProblem loaded;
    loaded.warm = &state_->warm;
    SPARSEFW_EXPECT_OK(engine_.Load(loaded));
    script_.calls.clear();
    return *state_;
  }

  absl::Status Iterate(SolveState& state) {
    CheckpointLog log(state);
    return RunFrankWolfe(state, log);
  }

  MemorySink sink_;
  LayerCache cache_;
  const SolveContext context_{.problem = problem_,
                              .options = options_,
                              .backend = backend_,
                              .cache = cache_,
                              .observer = &observer_,
                              .stop = &script_.stop,
                              .now = [this] { return script_.now; },
                              .checkpoints = {.sink = &sink_}};
  ScriptedEngine engine_{script_};
  std::optional<SolveState> state_;
};

TEST_F(StagesTest, FrankWolfeRoundsAtReportPointsAndKeepsTheBestMask) {
  SolveState& state = AfterWarmStart();
  SPARSEFW_ASSERT_OK(Iterate(state));
  EXPECT_THAT(script_.calls, ElementsAre("evaluate", "step", "step", "round", "loss", "step",
                                         "round", "loss", "step", "round", "loss", "evaluate"));
  EXPECT_THAT(script_.batches, ElementsAre(1, 99, 100, 50));
  EXPECT_EQ(state.stats.iteration, 250);
  EXPECT_EQ(state.last_report, 250);
  EXPECT_EQ(state.result.final_loss, 50);
  EXPECT_EQ(state.result.candidate, CandidateKind::kRounded);
  EXPECT_NE(state.result.mask, state.warm);
  EXPECT_NE(state.result.mask, state.last_tried);  // the first of equal losses stays
  EXPECT_EQ(observer_.reports.size(), 3U);
}

TEST_F(StagesTest, FrankWolfeThatFindsNothingBetterLeavesTheMask) {
  script_.rounded_loss = 100;
  SolveState& state = AfterWarmStart();
  SPARSEFW_ASSERT_OK(Iterate(state));
  EXPECT_EQ(state.result.mask, state.warm);
  EXPECT_EQ(state.result.candidate, CandidateKind::kWarmStart);
}

TEST_F(StagesTest, FrankWolfeThatIsStoppedStandsByItsBestMask) {
  StopAt("step", 3);
  SolveState& state = AfterWarmStart();
  SPARSEFW_ASSERT_OK(Iterate(state));
  EXPECT_EQ(state.result.stop_cause, StopCause::kCancelled);
  EXPECT_EQ(state.result.final_loss, 50);
  EXPECT_EQ(state.last_report, 100);
}

TEST_F(StagesTest, FrankWolfeDoesNotBeginWithoutTimeForTwoLosses) {
  cache_.loss_time = absl::Seconds(5);
  options_.deadline = script_.now + absl::Seconds(10);
  SolveState& state = AfterWarmStart();
  SPARSEFW_ASSERT_OK(Iterate(state));
  EXPECT_EQ(state.result.stop_cause, StopCause::kDeadline);
  EXPECT_THAT(script_.calls, ElementsAre());
}

// Its backend says that it has none.
TEST_F(StagesTest, WithoutATagNoCheckpointIsOffered) {
  SolveState& state = AfterWarmStart();
  CheckpointLog log(state);
  SPARSEFW_ASSERT_OK(log.Open());
  SPARSEFW_ASSERT_OK(log.Offer(Stage::kRefine));
  EXPECT_FALSE(log.resumes());
  EXPECT_TRUE(sink_.asked.empty());
}

TEST_F(StagesTest, SwapsThatLoseMoreThanTheyStartedFromAreNotTaken) {
  script_.refined_loss = 100;
  SolveState& state = AfterWarmStart();
  SPARSEFW_ASSERT_OK(RunSwaps(state));
  EXPECT_EQ(state.result.mask, state.warm);
  EXPECT_EQ(state.result.swaps, 0);
  script_.refined_loss = 99;
  SPARSEFW_ASSERT_OK(RunSwaps(state));
  EXPECT_NE(state.result.mask, state.warm);
  EXPECT_EQ(state.result.swaps, 7);
  EXPECT_EQ(state.result.final_loss, 99);
}

TEST_F(StagesTest, ReconstructionThatGainsNothingGivesTheMaskedWeights) {
  script_.weights_loss = 100;
  SolveState& state = AfterWarmStart();
  SPARSEFW_ASSERT_OK(Reconstruct(state));
  EXPECT_EQ(state.result.reconstructed_loss, 100);
  EXPECT_EQ(state.result.weights(0, 9), 0);
  EXPECT_EQ(state.result.weights(0, 10), weights_(0, 10));
}

}  // namespace
}  // namespace sparsefw
