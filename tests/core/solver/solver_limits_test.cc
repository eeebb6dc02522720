// Solve with a scripted engine and clock: stop, deadline and errors at every
// stage, and how the work is cut into batches.
#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/solver.h"
#include "tests/core/solver/scripted_engine.h"
#include "tests/testing/matchers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::StatusIs;
using ::testing::ElementsAre;

using SolverLimitsTest = ::sparsefw::testing::ScriptedSolveTest;

TEST_F(SolverLimitsTest, RunsAllIterationsAndReportsAtReportPoints) {
  options_.iterations = 250;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kIterations);
  EXPECT_EQ(result.iterations, 250);
  EXPECT_EQ(result.candidate, CandidateKind::kRounded);
  EXPECT_EQ(result.full_loss, 1000);
  EXPECT_EQ(result.warm_start_loss, 100);
  EXPECT_EQ(result.relaxed_loss, 40);
  EXPECT_EQ(result.rounded_loss, 50);
  EXPECT_EQ(result.final_loss, 50);
  EXPECT_EQ(result.lower_bound, 10);
  EXPECT_EQ(result.relative_reduction, 0.5);
  ASSERT_EQ(observer_.reports.size(), 3U);
  EXPECT_EQ(observer_.reports[0].iteration, 100);
  EXPECT_EQ(observer_.reports[1].iteration, 200);
  EXPECT_EQ(observer_.reports[2].iteration, 250);
  EXPECT_EQ(observer_.reports[2].iterations_total, 250);
  EXPECT_EQ(observer_.reports[2].gap, 30);
  EXPECT_EQ(observer_.reports[2].threshold_residual, 0.25);
  EXPECT_EQ(observer_.reports[2].best_loss, 50);
}

TEST_F(SolverLimitsTest, TheEngineIsToldOfThreadsStopAndPrecision) {
  options_.threads = 3;
  options_.product_precision = ProductPrecision::kBf16;
  SPARSEFW_ASSERT_OK(Run());
  EXPECT_EQ(script_.engine_options.threads, 3);
  EXPECT_EQ(script_.engine_options.stop, &script_.stop);
  EXPECT_EQ(script_.engine_options.product_precision, ProductPrecision::kBf16);
}

TEST_F(SolverLimitsTest, WorseRoundedMasksLeaveTheWarmStart) {
  script_.rounded_loss = 101;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.candidate, CandidateKind::kWarmStart);
  EXPECT_EQ(result.final_loss, 100);
  EXPECT_EQ(result.rounded_loss, 101);
  EXPECT_EQ(result.relative_reduction, 0);
}

// From the warm start's to the first rounded mask's, from that to the next one's.
TEST_F(SolverLimitsTest, RoundedMasksAreComparedWithTheLastOne) {
  script_.near_loss = 40;
  options_.iterations = 300;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.final_loss, 40);
  EXPECT_THAT(script_.known_losses, ElementsAre(100, 40, 40));
  EXPECT_EQ(std::count(script_.calls.begin(), script_.calls.end(), "loss"), 0);
}

// Its rounding would be that of the larger one.
TEST_F(SolverLimitsTest, ALossFarBelowTheOneItIsComparedWithIsComputedFromScratch) {
  script_.near_loss = 6;
  script_.rounded_loss = 5.5;
  options_.iterations = 100;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.final_loss, 5.5);
  EXPECT_EQ(std::count(script_.calls.begin(), script_.calls.end(), "loss"), 1);
}

TEST_F(SolverLimitsTest, OneShotTakesNoStep) {
  options_.method = Method::kMagnitude;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_THAT(script_.calls, ElementsAre("load", "full_loss", "warm_loss"));
  EXPECT_EQ(result.stop_cause, StopCause::kIterations);
  EXPECT_EQ(result.iterations, 0);
  EXPECT_EQ(result.relaxed_loss, 100);
  EXPECT_EQ(result.rounded_loss, 100);
  EXPECT_EQ(result.final_loss, 100);
  EXPECT_EQ(result.lower_bound, 0);
  EXPECT_TRUE(observer_.reports.empty());
}

// However slow the steps: engines need many at once to iterate row by row, and
// once timed by small batches they were slow, and kept to small batches.
TEST_F(SolverLimitsTest, BatchesReachTheNextReport) {
  script_.step_duration = absl::Seconds(2);
  options_.iterations = 25;
  options_.report_every = 10;
  SPARSEFW_ASSERT_OK(Run());
  EXPECT_THAT(script_.batches, ElementsAre(1, 9, 10, 5));
}

TEST_F(SolverLimitsTest, WithADeadlineBatchesHalveWhatIsLeft) {
  script_.step_duration = absl::Seconds(1);
  options_.deadline = script_.now + absl::Seconds(33);
  options_.report_every = 1000;
  SPARSEFW_ASSERT_OK(Run());
  EXPECT_THAT(script_.batches, ElementsAre(1, 16, 8, 4, 2, 1));
  EXPECT_LE(script_.now, options_.deadline);
}

TEST_F(SolverLimitsTest, GapEndsTheIterationWithARounding) {
  script_.gap_at = 137;
  options_.rel_gap = 0.5;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kGap);
  EXPECT_EQ(result.iterations, 137);
  ASSERT_EQ(observer_.reports.size(), 2U);
  EXPECT_EQ(observer_.reports.back().iteration, 137);
}

TEST_F(SolverLimitsTest, CancelBeforeTheStartIsAnError) {
  script_.stop.Request();
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kCancelled, "CANCELLED"));
  EXPECT_TRUE(script_.calls.empty());
}

class CancelBeforeMaskTest : public SolverLimitsTest,
                             public ::testing::WithParamInterface<std::string> {};

TEST_P(CancelBeforeMaskTest, IsAnError) {
  StopAt(GetParam());
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kCancelled, "CANCELLED", "before there was"));
  EXPECT_EQ(script_.calls.back(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Calls, CancelBeforeMaskTest,
                         ::testing::Values("load", "full_loss", "warm_loss"),
                         [](const auto& test) { return test.param; });

class CancelWithMaskTest : public SolverLimitsTest,
                           public ::testing::WithParamInterface<std::string> {};

TEST_P(CancelWithMaskTest, FirstTimeKeepsTheWarmStart) {
  StopAt(GetParam());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kCancelled);
  EXPECT_EQ(result.candidate, CandidateKind::kWarmStart);
  EXPECT_EQ(result.final_loss, 100);
  EXPECT_EQ(result.kept_count, 10);
  EXPECT_TRUE(observer_.reports.empty());
}

TEST_P(CancelWithMaskTest, LaterKeepsTheBestMaskSoFar) {
  script_.step_duration = absl::Milliseconds(1);
  if (GetParam() == "evaluate") GTEST_SKIP() << "is called once";
  StopAt(GetParam(), GetParam() == "step" ? 3 : 2);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kCancelled);
  EXPECT_EQ(result.candidate, CandidateKind::kRounded);
  EXPECT_EQ(result.final_loss, 50);
  EXPECT_EQ(result.lower_bound, 10);
  EXPECT_EQ(observer_.reports.size(), 1U);
  EXPECT_LT(result.iterations, 1000);
}

INSTANTIATE_TEST_SUITE_P(Calls, CancelWithMaskTest,
                         ::testing::Values("evaluate", "step", "round", "loss"),
                         [](const auto& test) { return test.param; });

TEST_F(SolverLimitsTest, DeadlineAlreadyPassedIsAnError) {
  options_.deadline = script_.now;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                              "before there was a mask"));
  EXPECT_TRUE(script_.calls.empty());
}

TEST_F(SolverLimitsTest, DeadlineBeforeThereIsAMaskIsAnError) {
  options_.deadline = script_.now + absl::Seconds(10);
  script_.duration["load"] = absl::Seconds(11);
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  script_.duration["load"] = absl::Seconds(1);
  script_.duration["full_loss"] = absl::Seconds(11);
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
}

TEST_F(SolverLimitsTest, DeadlineAfterTheWarmLossGivesTheWarmStart) {
  options_.deadline = script_.now + absl::Seconds(10);
  script_.duration["warm_loss"] = absl::Seconds(11);
  options_.method = Method::kWanda;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult one_shot, Run());
  EXPECT_EQ(one_shot.stop_cause, StopCause::kIterations);
  options_.method = Method::kSparseFw;
  options_.deadline = script_.now + absl::Seconds(10);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kDeadline);
  EXPECT_EQ(result.iterations, 0);
  EXPECT_TRUE(script_.batches.empty());
}

// At 131072 x 2048 the first product took 17 s beyond a deadline of 20 s.
TEST_F(SolverLimitsTest, NoIterationBeginsThatCannotEndInTime) {
  options_.deadline = script_.now + absl::Seconds(16);
  script_.duration = {{"full_loss", absl::Seconds(5)},
                      {"warm_loss", absl::Seconds(5)},
                      {"evaluate", absl::Seconds(5)}};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kDeadline);
  EXPECT_EQ(result.iterations, 0);
  EXPECT_EQ(result.final_loss, result.warm_start_loss);
  EXPECT_LE(script_.now, options_.deadline);
}

// 3 s for the losses, then steps of 0.1 s; a rounding takes 0.5 s and a loss
// 1 s, which must fit before second 20: the last step ends at 18.5 or before.
TEST_F(SolverLimitsTest, DeadlineLeavesTimeForRoundingAndLoss) {
  const absl::Time start = script_.now;
  options_.deadline = start + absl::Seconds(20);
  options_.report_every = 30;
  script_.duration = {{"full_loss", absl::Seconds(1)},
                      {"warm_loss", absl::Seconds(1)},
                      {"loss", absl::Seconds(1)},
                      {"round", absl::Milliseconds(500)}};
  script_.step_duration = absl::Milliseconds(100);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.stop_cause, StopCause::kDeadline);
  EXPECT_EQ(result.candidate, CandidateKind::kRounded);
  EXPECT_LE(script_.now, options_.deadline);
  EXPECT_GE(script_.now, options_.deadline - absl::Milliseconds(300));
  EXPECT_EQ(observer_.reports.back().iteration, result.iterations);
  EXPECT_EQ(result.solve_time + result.load_time, script_.now - start);
}

TEST_F(SolverLimitsTest, MemoryThatRunsOutIsResourceExhausted) {
  script_.on_call = [](const std::string& call) {
    if (call == "evaluate") throw std::bad_alloc();
  };
  EXPECT_THAT(RunSolve(), StatusIs(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY", "[1, 20]",
                                   "scripted"));
}

// Without that start the result would be another than that of the next run.
TEST_F(SolverLimitsTest, AnErrorAtTheSecondStartOfTheJointSearchEndsTheJob) {
  options_.joint = true;
  script_.on_call = [this, count = 0](const std::string& call) mutable {
    if (call != "weights_loss" || ++count < 2) return;
    script_.error = WithReason(absl::ResourceExhaustedError("no room"), "OUT_OF_MEMORY");
  };
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY", "no room"));
}

TEST_F(SolverLimitsTest, OtherExceptionsAreInternal) {
  script_.on_call = [](const std::string& call) {
    if (call == "load") throw std::runtime_error("a wheel came off");
  };
  EXPECT_THAT(RunSolve(), StatusIs(absl::StatusCode::kInternal, "", "a wheel came off"));
  script_.on_call = [](const std::string& call) {
    if (call == "load") throw 42;
  };
  EXPECT_THAT(RunSolve(), StatusIs(absl::StatusCode::kInternal, "", "an unknown exception"));
}

TEST_F(SolverLimitsTest, CertificateIsNeverAboveTheFinalLoss) {
  script_.lower_bound = -5;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(SolveResult result, Run());
  EXPECT_EQ(result.lower_bound, 0);
  script_.lower_bound = 50 * (1 + 1e-5);  // rounding
  SPARSEFW_ASSERT_OK_AND_ASSIGN(result, Run());
  EXPECT_EQ(result.lower_bound, 50);
  script_.lower_bound = 55;  // contradicts the mask: G cannot be PSD
  SPARSEFW_ASSERT_OK_AND_ASSIGN(result, Run());
  EXPECT_EQ(result.lower_bound, 0);
}

TEST_F(SolverLimitsTest, SolveUsesTheRealClock) {
  options_.iterations = 10;
  options_.deadline = absl::Now() - absl::Seconds(1);
  EXPECT_THAT(RunSolve(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  options_.deadline = absl::Now() + absl::Hours(1);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, RunSolve());
  EXPECT_EQ(result.iterations, 10);
}

// Rounding may leave less than nothing for an iterate that is as good as the dense weights.
TEST_F(SolverLimitsTest, ARelaxedLossBelowNothingIsReportedAsNothing) {
  script_.relaxed_loss = -2e-16;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.relaxed_loss, 0);
  ASSERT_FALSE(observer_.reports.empty());
  for (const auto& report : observer_.reports) EXPECT_EQ(report.relaxed_loss, 0);
}

}  // namespace
}  // namespace sparsefw
