// SparseGPT, stopped and out of time: an error, since there is no mask before
// it ends.
#include <atomic>

#include "absl/time/time.h"
#include "core/src/solver/solve_run.h"
#include "core/src/sparsegpt/sparsegpt.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StatusIs;

class SparseGptLimitsTest : public ::testing::TestWithParam<Pattern> {
 protected:
  // The whole solve, with a clock that moves one second at every look.
  absl::StatusOr<SolveResult> RunSolve(int64_t seconds, const StopSignal* stop) {
    std::atomic<int64_t> looks = 0;
    const SolveOptions options = {.method = Method::kSparseGpt,
                                  .deadline = absl::FromUnixSeconds(seconds)};
    LayerCache cache;
    const SolveContext context = {.problem = problem_,
                                  .options = options,
                                  .backend = **FindBackend("cpu"),
                                  .cache = cache,
                                  .stop = stop,
                                  .now = [&] { return absl::FromUnixSeconds(looks++); }};
    return sparsefw::RunSolve(context);
  }

  const RandomLayer layer_ = MakeRandomLayer({.rows = 70, .cols = 300});
  const Problem problem_ = {layer_.weights.view(), layer_.gram.view(), GetParam(),
                            ConstMatrixView(), nullptr};
};

INSTANTIATE_TEST_SUITE_P(Patterns, SparseGptLimitsTest,
                         ::testing::Values(Pattern::Unstructured(0.5), Pattern::PerRow(0.5),
                                           Pattern::KeepOfGroup(2, 4)));

// Whatever the moment, a limit gives no half-done result.
TEST_P(SparseGptLimitsTest, EndsWhereverTheDeadlineFalls) {
  int64_t cut_short = 0;
  for (int64_t limit = 1;; ++limit) {
    std::atomic<int64_t> looks = 0;
    const ParallelContext context(2, nullptr, [&] { return ++looks > limit; });
    const absl::StatusOr<PrunedWeights> pruned = sparsegpt::Prune(problem_, {}, context);
    if (pruned.ok()) {
      EXPECT_LE(looks, limit);
      break;
    }
    EXPECT_THAT(pruned, StatusIs(absl::StatusCode::kCancelled));
    ++cut_short;
  }
  EXPECT_GT(cut_short, 20);
}

TEST_P(SparseGptLimitsTest, EndsWhereverItIsStopped) {
  for (const int64_t limit : {1, 5, 20}) {
    StopSignal stop;
    std::atomic<int64_t> looks = 0;
    const auto count = [&] {
      if (++looks == limit) stop.Request();
      return false;
    };
    const ParallelContext context(2, &stop, count);
    EXPECT_THAT(sparsegpt::Prune(problem_, {}, context), StatusIs(absl::StatusCode::kCancelled));
    EXPECT_LT(looks, limit + 4);  // the pieces that had begun
  }
}

TEST_P(SparseGptLimitsTest, SolveSaysWhichOfTheTwoItWas) {
  EXPECT_THAT(RunSolve(25, nullptr), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                              "DEADLINE_EXCEEDED", "before there was a mask"));
  StopSignal stop;
  stop.Request();
  EXPECT_THAT(RunSolve(1'000'000, &stop),
              StatusIs(absl::StatusCode::kCancelled, "CANCELLED", "before there was a mask"));
  SPARSEFW_EXPECT_OK(RunSolve(1'000'000, nullptr));
}

}  // namespace
}  // namespace sparsefw
