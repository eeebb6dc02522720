// Solve with a scripted engine and clock: swaps and reconstruction, what they
// are given, and how stop and deadline leave them out.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/solver.h"
#include "tests/core/solver/scripted_engine.h"
#include "tests/testing/matchers.h"

namespace sparsefw {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

class SolverAfterTest : public ::sparsefw::testing::ScriptedSolveTest {
 protected:
  SolverAfterTest() {
    options_.iterations = 100;
    options_.swaps = true;
    options_.reconstruct = true;
  }
};

TEST_F(SolverAfterTest, RefinesTheBestMaskAndThenReconstructs) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kIterations);
  EXPECT_EQ(result.candidate, CandidateKind::kRefined);
  EXPECT_EQ(result.rounded_loss, 50);
  EXPECT_EQ(result.final_loss, 45);
  EXPECT_EQ(result.swaps, 7);
  EXPECT_EQ(result.lower_bound, 10);
  EXPECT_EQ(result.relative_reduction, 0.55);
  EXPECT_EQ(result.reconstructed_loss, 20);
  EXPECT_EQ(result.weights(0, 0), 5);
  EXPECT_TRUE(script_.refine_request.keep_fixed);
  ASSERT_EQ(observer_.reports.size(), 2U);
  EXPECT_EQ(observer_.reports[0].swaps, 0);
  EXPECT_EQ(observer_.reports[1].swaps, 7);
  EXPECT_EQ(observer_.reports[1].best_loss, 45);
  EXPECT_EQ(observer_.reports[1].threshold_residual, 0.25);
}

TEST_F(SolverAfterTest, OneShotMethodsToo) {
  options_.method = Method::kWanda;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_THAT(script_.calls, ElementsAre("load", "full_loss", "warm_loss", "refine", "loss",
                                         "reconstruct", "weights_loss"));
  EXPECT_EQ(result.candidate, CandidateKind::kRefined);
  EXPECT_EQ(result.relaxed_loss, 100);
  EXPECT_EQ(result.rounded_loss, 100);
  EXPECT_EQ(result.final_loss, 45);
  EXPECT_EQ(result.lower_bound, 0);
  ASSERT_EQ(observer_.reports.size(), 1U);
  EXPECT_EQ(observer_.reports[0].iterations_total, 0);
  EXPECT_EQ(observer_.reports[0].swaps, 7);
}

TEST_F(SolverAfterTest, WorseMasksAndWeightsAreNotTaken) {
  script_.refined_loss = 51;
  script_.weights_loss = 50.5;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.candidate, CandidateKind::kRounded);
  EXPECT_EQ(result.final_loss, 50);
  EXPECT_EQ(result.swaps, 0);
  EXPECT_EQ(result.reconstructed_loss, 50);
  for (int64_t col = 0; col < 20; ++col) {
    EXPECT_EQ(result.weights(0, col), result.mask.Get(0, col) ? weights_(0, col) : 0);
  }
}

// The scripted refinement keeps columns 0 to 9; the fixed set is of 10 to 19.
TEST_F(SolverAfterTest, NoCertificateForMasksThatGaveUpFixedWeights) {
  options_.keep_fixed = false;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_FALSE(script_.refine_request.keep_fixed);
  EXPECT_EQ(result.lower_bound, 0);
  EXPECT_EQ(observer_.reports.back().lower_bound, 0);
  EXPECT_EQ(observer_.reports.front().lower_bound, 10);
  options_.alpha = 0;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult nothing_fixed, Run());
  EXPECT_EQ(nothing_fixed.lower_bound, 10);
}

TEST_F(SolverAfterTest, CancelInTheIterationLeavesOutTheRest) {
  StopAt("step");
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kCancelled);
  EXPECT_THAT(script_.calls, Not(Contains("refine")));
  EXPECT_THAT(script_.calls, Not(Contains("reconstruct")));
  EXPECT_EQ(result.weights.size(), 0);
}

// No loss can be computed any more; the engine's own sum is taken.
TEST_F(SolverAfterTest, CancelInTheSwapsKeepsTheMaskSoFar) {
  StopAt("refine");
  script_.refined_change = -3;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kCancelled);
  EXPECT_EQ(result.candidate, CandidateKind::kRefined);
  EXPECT_TRUE(result.mask.Get(0, 0));
  EXPECT_EQ(result.final_loss, 47);
  EXPECT_EQ(result.swaps, 7);
  EXPECT_THAT(script_.calls, Not(Contains("reconstruct")));
}

class CancelInReconstructionTest : public SolverAfterTest,
                                   public ::testing::WithParamInterface<std::string> {};

TEST_P(CancelInReconstructionTest, LeavesTheMaskWithoutWeights) {
  StopAt(GetParam());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kCancelled);
  EXPECT_EQ(result.candidate, CandidateKind::kRefined);
  EXPECT_EQ(result.final_loss, 45);
  EXPECT_EQ(result.weights.size(), 0);
  EXPECT_EQ(result.reconstructed_loss, 0);
}

INSTANTIATE_TEST_SUITE_P(Calls, CancelInReconstructionTest,
                         ::testing::Values("reconstruct", "weights_loss"),
                         [](const auto& test) { return test.param; });

TEST_F(SolverAfterTest, LeftOutWhereTheDeadlineIsTooNear) {
  options_.method = Method::kWanda;
  script_.duration["warm_loss"] = absl::Seconds(1);
  options_.deadline = script_.now + absl::Seconds(3.9);  // 2.9 s are left: not three losses
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kDeadline);
  EXPECT_EQ(result.candidate, CandidateKind::kWarmStart);
  EXPECT_EQ(result.final_loss, 100);
  EXPECT_EQ(result.weights.size(), 0);
  EXPECT_THAT(script_.calls, ElementsAre("load", "full_loss", "warm_loss"));
}

TEST_F(SolverAfterTest, SwapsCutShortByTheDeadlineCount) {
  options_.method = Method::kWanda;
  script_.duration["warm_loss"] = absl::Seconds(1);
  script_.duration["refine"] = absl::Seconds(5);
  options_.deadline = script_.now + absl::Seconds(6.5);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kDeadline);
  EXPECT_EQ(result.candidate, CandidateKind::kRefined);
  EXPECT_EQ(result.final_loss, 45);
  EXPECT_EQ(result.swaps, 7);
  EXPECT_EQ(result.weights.size(), 0);
  EXPECT_THAT(script_.calls, Not(Contains("reconstruct")));
}

TEST_F(SolverAfterTest, WeightsCutShortByTheDeadlineCount) {
  options_.method = Method::kWanda;
  options_.swaps = false;
  script_.duration["warm_loss"] = absl::Seconds(1);
  script_.duration["reconstruct"] = absl::Seconds(5);
  options_.deadline = script_.now + absl::Seconds(7);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kDeadline);
  EXPECT_EQ(result.reconstructed_loss, 20);
  EXPECT_EQ(result.weights.size(), 20);
}

}  // namespace
}  // namespace sparsefw
