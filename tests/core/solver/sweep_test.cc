// Many settings on one layer: the same results as one by one.
#include "sparsefw/sweep.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/solver/memory_checkpoints.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::ExpectSameResult;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MemorySink;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StatusIs;

class Outcomes final : public SweepObserver {
 public:
  void OnReport(const ProgressReport& report) override { reports.push_back(report); }
  absl::Status OnResult(size_t point, absl::StatusOr<SolveResult> result) override {
    EXPECT_EQ(point, results.size());
    results.push_back(std::move(result));
    if (on_result) on_result();
    return answer;
  }
  std::vector<ProgressReport> reports;
  std::vector<absl::StatusOr<SolveResult>> results;
  std::function<void()> on_result;
  absl::Status answer;
};

class SweepTest : public ::testing::TestWithParam<std::string> {
 protected:
  const Backend& backend() const { return **FindBackend(GetParam()); }
  Problem problem() const {
    return {layer_.weights.view(), layer_.gram.view(), Pattern(), ConstMatrixView(), nullptr};
  }
  absl::Status Sweep(const std::vector<SweepPoint>& points) {
    return SolveSweep(problem(), points, backend(), outcomes_, &stop_);
  }

  RandomLayer layer_ = MakeRandomLayer({.rows = 24, .cols = 32, .correlation = 0.9, .seed = 5});
  Outcomes outcomes_;
  StopSignal stop_;
};

INSTANTIATE_TEST_SUITE_P(Backends, SweepTest, ::testing::Values("cpu", "reference"),
                         [](const auto& test) { return test.param; });

SweepPoint Point(const Pattern& pattern, Method method, double alpha,
                 StepRule rule = StepRule::kOpenLoop) {
  return {pattern, {.method = method, .alpha = alpha, .iterations = 40, .step_rule = rule}};
}

TEST_P(SweepTest, EveryPointIsWhatSolveGives) {
  const Pattern rows = Pattern::PerRow(0.6);
  const std::vector<SweepPoint> points = {
      Point(rows, Method::kSparseFw, 0.9), Point(rows, Method::kSparseFw, 0.5),
      Point(rows, Method::kSparseFw, 0, StepRule::kLineSearch), Point(rows, Method::kWanda, 0.9),
      Point(Pattern::Unstructured(0.5), Method::kSparseFw, 0.9),
      Point(Pattern::KeepOfGroup(2, 4), Method::kRia, 0.9),
      Point(Pattern::KeepOfGroup(2, 4), Method::kSparseFw, 0.5),
      // The setting of the first once more: nothing is left of those between.
      Point(rows, Method::kSparseFw, 0.9)};
  SPARSEFW_ASSERT_OK(Sweep(points));
  ASSERT_EQ(outcomes_.results.size(), points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    SCOPED_TRACE(i);
    Problem alone = problem();
    alone.pattern = points[i].pattern;
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult expected,
                                  Solve(alone, points[i].options, backend(), nullptr, nullptr));
    SPARSEFW_ASSERT_OK(outcomes_.results[i]);
    const SolveResult& actual = *outcomes_.results[i];
    EXPECT_EQ(actual.mask, expected.mask);
    EXPECT_EQ(actual.full_loss, expected.full_loss);
    EXPECT_EQ(actual.warm_start_loss, expected.warm_start_loss);
    EXPECT_EQ(actual.relaxed_loss, expected.relaxed_loss);
    EXPECT_EQ(actual.final_loss, expected.final_loss);
    EXPECT_EQ(actual.lower_bound, expected.lower_bound);
    EXPECT_EQ(actual.iterations, expected.iterations);
  }
}

TEST_P(SweepTest, ReportsSayWhichPointRuns) {
  SPARSEFW_ASSERT_OK(Sweep({Point(Pattern::PerRow(0.5), Method::kSparseFw, 0.5),
                            Point(Pattern::PerRow(0.5), Method::kWanda, 0.5),
                            Point(Pattern::PerRow(0.5), Method::kSparseFw, 0.9)}));
  ASSERT_FALSE(outcomes_.reports.empty());
  EXPECT_EQ(outcomes_.reports.front().sweep_point, 0);
  EXPECT_EQ(outcomes_.reports.back().sweep_point, 2);
  for (const ProgressReport& report : outcomes_.reports) EXPECT_NE(report.sweep_point, 1);
}

TEST_P(SweepTest, APointThatFailsDoesNotEndTheOthers) {
  SPARSEFW_ASSERT_OK(
      Sweep({Point(Pattern::KeepOfGroup(1, 5), Method::kSparseFw, 0.5),  // 5: not of 32
             Point(Pattern::PerRow(0.5), Method::kSparseFw, 2.0),
             Point(Pattern::PerRow(0.5), Method::kSparseFw, 0.5)}));
  EXPECT_THAT(outcomes_.results[0].status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "PATTERN_INVALID", "32"));
  EXPECT_THAT(outcomes_.results[1].status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID", "alpha=2"));
  SPARSEFW_EXPECT_OK(outcomes_.results[2]);
}

TEST_P(SweepTest, AStopEndsThePointsThatHaveNotBegun) {
  outcomes_.on_result = [this] { stop_.Request(); };
  SPARSEFW_ASSERT_OK(Sweep({Point(Pattern::PerRow(0.5), Method::kSparseFw, 0.5),
                            Point(Pattern::PerRow(0.5), Method::kSparseFw, 0.9),
                            Point(Pattern::PerRow(0.5), Method::kWanda, 0.9)}));
  ASSERT_EQ(outcomes_.results.size(), 3);
  SPARSEFW_EXPECT_OK(outcomes_.results[0]);
  EXPECT_TRUE(absl::IsCancelled(outcomes_.results[1].status()));
  EXPECT_TRUE(absl::IsCancelled(outcomes_.results[2].status()));
}

TEST_P(SweepTest, AnObserverThatRefusesAResultEndsTheSweep) {
  outcomes_.answer = absl::ResourceExhaustedError("no room");
  EXPECT_EQ(Sweep({Point(Pattern::PerRow(0.5), Method::kWanda, 0.5),
                   Point(Pattern::PerRow(0.5), Method::kRia, 0.9)}),
            outcomes_.answer);
  EXPECT_EQ(outcomes_.results.size(), 1);
}

TEST_P(SweepTest, NeedsAPoint) {
  EXPECT_THAT(Sweep({}),
              StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID", "at least 1 point"));
}

// Interrupted after every checkpoint of every point.
TEST_P(SweepTest, GoesOnFromACheckpoint) {
  std::vector<SweepPoint> points = {
      Point(Pattern::PerRow(0.6), Method::kSparseFw, 0.9),
      Point(Pattern::PerRow(0.6), Method::kSparseFw, 0.5, StepRule::kLineSearch),
      Point(Pattern::PerRow(0.6), Method::kWanda, 0.5),
      Point(Pattern::Unstructured(0.5), Method::kSparseFw, 0.5)};
  for (SweepPoint& point : points) point.options.report_every = 15;
  points[1].options.swaps = true;
  SPARSEFW_ASSERT_OK(Sweep(points));
  const Outcomes plain = std::move(outcomes_);

  Outcomes observed;
  MemorySink sink;
  SPARSEFW_ASSERT_OK(SolveSweep(problem(), points, backend(), observed, nullptr,
                                {.checkpoints = {.sink = &sink}}));
  ASSERT_EQ(sink.checkpoints.size(), 7);
  ASSERT_EQ(observed.results.size(), points.size());
  for (size_t k = 0; k < sink.checkpoints.size(); ++k) {
    SCOPED_TRACE(k);
    const auto first = static_cast<size_t>(sink.infos[k].sweep_point);
    EXPECT_EQ(PeekCheckpoint(sink.checkpoints[k])->sweep_point, sink.infos[k].sweep_point);
    Outcomes resumed;
    for (size_t i = 0; i < first; ++i) resumed.results.emplace_back(absl::UnknownError("earlier"));
    SPARSEFW_ASSERT_OK(
        SolveSweep(problem(), points, backend(), resumed, nullptr,
                   {.first_point = first, .checkpoints = {.resume = sink.checkpoints[k]}}));
    ASSERT_EQ(resumed.results.size(), points.size());
    for (size_t point = 0; point < points.size(); ++point) {
      SCOPED_TRACE(point);
      ExpectSameResult(*observed.results[point], *plain.results[point]);
      if (point >= first) ExpectSameResult(*resumed.results[point], *plain.results[point]);
    }
    // A checkpoint of one point is none of another, and costs the sweep no result.
    Outcomes none;
    const size_t other = first == 0 ? 3 : 0;
    EXPECT_THAT(
        SolveSweep(problem(), points, backend(), none, nullptr,
                   {.first_point = other, .checkpoints = {.resume = sink.checkpoints[k]}}),
        StatusIs(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID", "sweep_point="));
    EXPECT_TRUE(none.results.empty());
  }
}

TEST_P(SweepTest, ThatWasInterruptedAfterItsLastPointHasNothingLeft) {
  const std::vector<SweepPoint> points = {Point(Pattern::PerRow(0.6), Method::kWanda, 0.9)};
  SPARSEFW_ASSERT_OK(
      SolveSweep(problem(), points, backend(), outcomes_, nullptr, {.first_point = points.size()}));
  EXPECT_TRUE(outcomes_.results.empty());
}

}  // namespace
}  // namespace sparsefw
