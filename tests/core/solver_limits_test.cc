// Solve with a scripted engine and clock: stop, deadline and errors at every
// stage, and how the work is cut into batches.
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "core/src/solver/solve_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/solver.h"
#include "tests/testing/matchers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::StatusIs;
using ::testing::ElementsAre;

// What happens when: every engine call is counted and takes its time.
struct Script {
  std::function<void(const std::string& call)> on_call = [](const std::string&) {};
  std::map<std::string, absl::Duration> duration;
  absl::Duration step_duration;
  double rounded_loss = 50;  // of every mask but the warm one, whose loss is 100
  double lower_bound = 10;
  int64_t gap_at = -1;  // reached_gap from this iteration on

  absl::Time now = absl::FromUnixSeconds(1000);
  StopSignal stop;
  std::vector<std::string> calls;
  std::vector<int64_t> batches;
};

class ScriptedEngine final : public Engine {
 public:
  explicit ScriptedEngine(Script& script) : script_(script) {}

  absl::Status Load(const EngineProblem& problem) override {
    warm_ = *problem.warm;
    return Call("load");
  }

  absl::StatusOr<StepStats> Step(const StepRequest& request) override {
    if (absl::Status status = Call(request.count == 0 ? "evaluate" : "step"); !status.ok()) {
      return status;
    }
    const int64_t end = iteration_ + request.count;
    iteration_ = script_.gap_at >= 0 ? std::min(end, script_.gap_at) : end;
    script_.now += static_cast<double>(request.count) * script_.step_duration;
    if (request.count > 0) script_.batches.push_back(request.count);
    return StepStats{.iteration = iteration_,
                     .relaxed_loss = 40,
                     .gap = 30,
                     .lower_bound = script_.lower_bound,
                     .reached_gap = iteration_ == script_.gap_at};
  }

  absl::StatusOr<RoundedMask> Round() override {
    (void)Call("round");
    ++rounds_;  // not the warm start, and another mask every time
    Mask mask(warm_.rows(), warm_.cols());
    for (int64_t col = 0; col < warm_.cols(); ++col) {
      mask.Set(0, col, !warm_.Get(0, col) && (col + rounds_) % 5 != 0);
    }
    return RoundedMask{std::move(mask), 0.25};
  }

  absl::StatusOr<double> Loss(const Mask& mask) override {
    const bool full = mask.CountKept() == 0;
    const bool warm = mask == warm_;
    if (absl::Status status = Call(full   ? "full_loss"
                                   : warm ? "warm_loss"
                                          : "loss");
        !status.ok()) {
      return status;
    }
    return full ? 1000 : warm ? 100 : script_.rounded_loss;
  }

 private:
  absl::Status Call(const std::string& call) {
    script_.calls.push_back(call);
    script_.on_call(call);
    script_.now += script_.duration[call];
    return script_.stop.requested() ? absl::CancelledError("scripted") : absl::OkStatus();
  }

  Script& script_;
  Mask warm_;
  int64_t iteration_ = 0;
  int64_t rounds_ = 0;
};

class ScriptedBackend final : public Backend {
 public:
  explicit ScriptedBackend(Script& script) : script_(script) {}
  std::string_view name() const override { return "scripted"; }
  DeviceDescription Describe() const override { return {}; }
  absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions&) const override {
    return std::make_unique<ScriptedEngine>(script_);
  }
  absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(int64_t,
                                                                         int) const override {
    return absl::UnimplementedError("not scripted");
  }
  int64_t EstimateHostBytes(int64_t, int64_t) const override { return 0; }

 private:
  Script& script_;
};

class Reports final : public SolveObserver {
 public:
  void OnReport(const ProgressReport& report) override { reports.push_back(report); }
  std::vector<ProgressReport> reports;
};

class SolverLimitsTest : public ::testing::Test {
 protected:
  SolverLimitsTest() {
    for (int64_t col = 0; col < 20; ++col) {
      weights_(0, col) = static_cast<float>(col + 1);
      gram_(col, col) = 1;
    }
    problem_.weights = weights_.view();
    problem_.gram = gram_.view();
    problem_.pattern = Pattern::PerRow(0.5);
    options_.iterations = 1000;
    options_.threads = 1;
  }

  absl::StatusOr<SolveResult> Run() {
    LayerWork work;
    return SolveRun({.problem = problem_,
                     .options = options_,
                     .backend = backend_,
                     .work = work,
                     .observer = &observer_,
                     .stop = &script_.stop,
                     .now = [this] { return script_.now; }})
        .Run();
  }

  absl::StatusOr<SolveResult> RunSolve() {
    return Solve(problem_, options_, backend_, &observer_, &script_.stop);
  }

  void StopAt(const std::string& call, int nth = 1) {
    script_.on_call = [this, call, nth, count = 0](const std::string& name) mutable {
      if (name == call && ++count == nth) script_.stop.Request();
    };
  }

  Matrix<float> weights_{1, 20};
  Matrix<double> gram_{20, 20};
  Problem problem_;
  SolveOptions options_;
  Script script_;
  ScriptedBackend backend_{script_};
  Reports observer_;
};

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

TEST_F(SolverLimitsTest, WorseRoundedMasksLeaveTheWarmStart) {
  script_.rounded_loss = 101;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result, Run());
  EXPECT_EQ(result.candidate, CandidateKind::kWarmStart);
  EXPECT_EQ(result.final_loss, 100);
  EXPECT_EQ(result.rounded_loss, 101);
  EXPECT_EQ(result.relative_reduction, 0);
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

TEST_F(SolverLimitsTest, BatchesAreAboutFiftyMilliseconds) {
  script_.step_duration = absl::Milliseconds(8);
  options_.iterations = 20;
  SPARSEFW_ASSERT_OK(Run());
  EXPECT_THAT(script_.batches, ElementsAre(1, 6, 6, 6, 1));
}

TEST_F(SolverLimitsTest, SlowStepsAreTakenOneByOne) {
  script_.step_duration = absl::Seconds(2);
  options_.iterations = 3;
  SPARSEFW_ASSERT_OK(Run());
  EXPECT_THAT(script_.batches, ElementsAre(1, 1, 1));
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
  script_.step_duration = absl::Milliseconds(1);  // several batches to a report
  if (GetParam() == "evaluate") GTEST_SKIP() << "is called once";
  StopAt(GetParam(), GetParam() == "step" ? 5 : 2);
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

TEST_F(SolverLimitsTest, OtherExceptionsAreInternal) {
  script_.on_call = [](const std::string& call) {
    if (call == "load") throw std::runtime_error("a wheel came off");
  };
  EXPECT_THAT(RunSolve(), StatusIs(absl::StatusCode::kInternal, "", "a wheel came off"));
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

}  // namespace
}  // namespace sparsefw
