// The joint search through Solve: its starts, what it is compared with, limits, refusals.
#include <algorithm>
#include <random>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "sparsefw/problem.h"
#include "sparsefw/solver.h"
#include "tests/core/solver/memory_checkpoints.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StatusIs;

Problem ProblemOf(const RandomLayer& layer, const Pattern& pattern) {
  return {layer.weights.view(), layer.gram.view(), pattern, ConstMatrixView(), nullptr};
}

const Backend& Cpu() { return **FindBackend("cpu"); }

const std::vector<Pattern>& Patterns() {
  static const std::vector<Pattern> patterns = {Pattern::PerRow(0.6), Pattern::Unstructured(0.6),
                                                Pattern::KeepOfGroup(2, 4)};
  return patterns;
}

// Fewer tokens than inputs and no damping: weights thousands of times as large have any loss that
// rounding of G makes. The loss of the true activations must be what the result says.
TEST(SolverJointTest, RoundingOfASingularGramIsNoGain) {
  constexpr int64_t kCols = 100;
  constexpr int64_t kTokens = 50;
  for (const uint32_t seed : {1U, 2U, 3U, 4U}) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    Matrix<double> inputs(kCols, kTokens);
    for (int64_t i = 0; i < inputs.size(); ++i) inputs.data()[i] = normal(random);
    Matrix<float> weights(24, kCols);
    for (int64_t i = 0; i < weights.size(); ++i) {
      weights.data()[i] = static_cast<float>(normal(random));
    }
    Matrix<float> gram(kCols, kCols);
    for (int64_t i = 0; i < kCols; ++i) {
      for (int64_t j = 0; j < kCols; ++j) {
        double sum = 0;
        for (int64_t t = 0; t < kTokens; ++t) sum += inputs(i, t) * inputs(j, t);
        gram(i, j) = static_cast<float>(sum);
      }
    }
    SolveOptions options = {.method = Method::kWanda, .joint = true};
    options.joint_options.damping = 0;
    for (const char* device : {"cpu", "reference"}) {
      SCOPED_TRACE(::testing::Message() << device << " " << seed);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult found,
                                    Solve({weights.view(), gram.view(), Pattern::KeepOfGroup(2, 4),
                                           ConstMatrixView(), nullptr},
                                          options, **FindBackend(device), nullptr, nullptr));
      double loss = 0;
      for (int64_t row = 0; row < weights.rows(); ++row) {
        for (int64_t t = 0; t < kTokens; ++t) {
          double missing = 0;
          for (int64_t j = 0; j < kCols; ++j) {
            missing += (static_cast<double>(weights(row, j)) -
                        static_cast<double>(found.weights(row, j))) *
                       inputs(j, t);
          }
          loss += missing * missing;
        }
      }
      EXPECT_NEAR(loss, found.reconstructed_loss, 1e-4 * found.full_loss);
    }
  }
}

TEST(SolverJointTest, StartsFromEveryMethodWithItsWeightsSolved) {
  const RandomLayer layer = MakeRandomLayer({.rows = 24, .cols = 64, .seed = 1});
  for (const char* device : {"cpu", "reference"}) {
    for (const Method method : {Method::kMagnitude, Method::kWanda, Method::kRia,
                                Method::kSparseGpt, Method::kSparseFw, Method::kAlps}) {
      SCOPED_TRACE(::testing::Message() << device << " " << static_cast<int>(method));
      const Problem problem = ProblemOf(layer, Pattern::PerRow(0.6));
      SolveOptions options = {.method = method, .alpha = 0.5, .iterations = 20};
      options.reconstruct = true;
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const SolveResult solved,
          Solve(problem, options, **FindBackend(device), nullptr, nullptr));
      options.reconstruct = false;
      options.joint = true;
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const SolveResult joint,
          Solve(problem, options, **FindBackend(device), nullptr, nullptr));
      EXPECT_TRUE(joint.joint.searched);
      EXPECT_TRUE(joint.joint.converged);
      EXPECT_EQ(joint.joint.start_loss, solved.reconstructed_loss);
      EXPECT_LT(joint.reconstructed_loss, solved.reconstructed_loss);
      EXPECT_GT(joint.joint.exchanges, 0);
      EXPECT_EQ(joint.joint.reduction, 1 - joint.reconstructed_loss / joint.joint.start_loss);
      EXPECT_EQ(joint.relative_reduction, 1 - joint.reconstructed_loss / joint.warm_start_loss);
      EXPECT_EQ(joint.candidate, CandidateKind::kJoint);
      EXPECT_EQ(joint.stop_cause, StopCause::kIterations);
      EXPECT_EQ(joint.kept_count, solved.kept_count);
      EXPECT_FALSE(solved.joint.searched);
    }
  }
}

TEST(SolverJointTest, WithSwapsBeforeIt) {
  const RandomLayer layer = MakeRandomLayer({.rows = 24, .cols = 64, .seed = 2});
  for (const Pattern& pattern : Patterns()) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const SolveResult result,
        Solve(ProblemOf(layer, pattern),
              {.method = Method::kWanda, .alpha = 0.5, .swaps = true, .joint = true}, Cpu(),
              nullptr, nullptr));
    EXPECT_GT(result.swaps, 0);
    EXPECT_GT(result.joint.exchanges, 0);
    EXPECT_LT(result.reconstructed_loss, result.joint.start_loss);
  }
}

TEST(SolverJointTest, NothingFixedReachesFurther) {
  const RandomLayer layer = MakeRandomLayer({.rows = 24, .cols = 64, .seed = 3});
  SolveOptions options = {.method = Method::kWanda, .alpha = 0.9, .joint = true};
  const Problem problem = ProblemOf(layer, Pattern::PerRow(0.6));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult kept,
                                Solve(problem, options, Cpu(), nullptr, nullptr));
  options.keep_fixed = false;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult free,
                                Solve(problem, options, Cpu(), nullptr, nullptr));
  EXPECT_LT(free.reconstructed_loss, kept.reconstructed_loss);
}

TEST(SolverJointTest, Refusals) {
  const RandomLayer layer = MakeRandomLayer({.rows = 4, .cols = 16, .seed = 4});
  const auto solve = [&](const SolveOptions& options) {
    return Solve(ProblemOf(layer, Pattern::PerRow(0.5)), options, Cpu(), nullptr, nullptr).status();
  };
  EXPECT_THAT(
      solve({.reconstruct = true, .joint = true}),
      StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID", "reconstruct", "joint"));
  EXPECT_THAT(solve({.joint = true, .joint_options = {.damping = -0.5}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID",
                       "joint_damping must be in [0, 1]", "-0.5"));
  EXPECT_THAT(solve({.joint = true, .joint_options = {.excluded = 1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID",
                       "joint_excluded must be in [0, 1)"));
  EXPECT_THAT(solve({.joint_options = {.excluded = std::nan("")}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID", "nan"));
  EXPECT_THAT(solve({.method = Method::kAlps, .swaps = true}),
              StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID", "ALPS"));
}

TEST(SolverJointTest, AStopBeforeItLeavesTheMaskWithoutWeights) {
  const RandomLayer layer = MakeRandomLayer({.rows = 60, .cols = 64, .seed = 5});
  SolveOptions options = {.method = Method::kWanda, .joint = true};
  options.deadline = absl::Now() - absl::Seconds(1);
  EXPECT_THAT(Solve(ProblemOf(layer, Pattern::PerRow(0.6)), options, Cpu(), nullptr, nullptr),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  class StopAtReport final : public SolveObserver {
   public:
    void OnReport(const ProgressReport&) override { stop.Request(); }
    StopSignal stop;
  } observer;
  SolveOptions iterated = {.alpha = 0.5, .iterations = 50, .report_every = 10, .joint = true};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SolveResult result,
      Solve(ProblemOf(layer, Pattern::PerRow(0.6)), iterated, Cpu(), &observer, &observer.stop));
  EXPECT_EQ(result.stop_cause, StopCause::kCancelled);
  EXPECT_EQ(result.weights.size(), 0);
  EXPECT_FALSE(result.joint.searched);
}

// A solve that goes on after its iteration ends with the same bits.
TEST(SolverJointTest, ContinuesFromACheckpoint) {
  const RandomLayer layer = MakeRandomLayer({.rows = 24, .cols = 64, .seed = 6});
  const Problem problem = ProblemOf(layer, Pattern::PerRow(0.6));
  const SolveOptions options = {.alpha = 0.5, .iterations = 20, .joint = true};
  testing::MemorySink sink;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult whole,
                                Solve(problem, options, Cpu(), nullptr, nullptr, {.sink = &sink}));
  ASSERT_FALSE(sink.checkpoints.empty());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const SolveResult resumed,
      Solve(problem, options, Cpu(), nullptr, nullptr, {.resume = sink.checkpoints.back()}));
  EXPECT_EQ(resumed.mask, whole.mask);
  EXPECT_EQ(resumed.reconstructed_loss, whole.reconstructed_loss);
  EXPECT_EQ(resumed.joint.exchanges, whole.joint.exchanges);
  EXPECT_TRUE(std::equal(resumed.weights.span().begin(), resumed.weights.span().end(),
                         whole.weights.span().begin()));
  SolveOptions other = options;
  other.joint_options.damping = 0.5;
  EXPECT_THAT(Solve(problem, other, Cpu(), nullptr, nullptr, {.resume = sink.checkpoints.back()}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "CHECKPOINT_INVALID"));
}

TEST(SolverJointTest, NewWeightsAreMeasuredWhateverTheResult) {
  const RandomLayer layer = MakeRandomLayer({.rows = 24, .cols = 64, .seed = 7});
  const Problem problem = ProblemOf(layer, Pattern::PerRow(0.6));
  SolveOptions options = {.method = Method::kWanda};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult plain,
                                Solve(problem, options, Cpu(), nullptr, nullptr));
  EXPECT_FALSE(plain.new_weights_loss.has_value());
  options.measure_new_weights = true;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult measured,
                                Solve(problem, options, Cpu(), nullptr, nullptr));
  EXPECT_EQ(measured.weights.size(), 0);
  EXPECT_EQ(measured.final_loss, plain.final_loss);
  EXPECT_EQ(measured.mask, plain.mask);
  options.reconstruct = true;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult solved,
                                Solve(problem, options, Cpu(), nullptr, nullptr));
  ASSERT_TRUE(measured.new_weights_loss.has_value());
  EXPECT_EQ(*measured.new_weights_loss, solved.reconstructed_loss);
  EXPECT_EQ(solved.new_weights_loss, solved.reconstructed_loss);
}

// Where the start is a mask of little use, a few iterations of ALPS are where the search begins;
// what the method's own mask loses is said all the same.
TEST(SolverJointTest, BeginsAtAFewIterationsOfAlpsWhereThatLosesLess) {
  const RandomLayer layer =
      MakeRandomLayer({.rows = 16, .cols = 64, .correlation = 0.9, .seed = 8});
  for (const auto& [device, pattern] :
       {std::pair("cpu", Pattern::KeepOfGroup(2, 4)), std::pair("cpu", Pattern::PerRow(0.6)),
        std::pair("cpu", Pattern::Unstructured(0.6)),
        std::pair("reference", Pattern::KeepOfGroup(2, 4))}) {
    SCOPED_TRACE(std::string(device) + " " + ToString(pattern));
    const Problem problem = ProblemOf(layer, pattern);
    // With all kept weights fixed there is nothing to search: what is found is where it begins.
    const auto solve = [&](const SolveOptions& options) {
      return Solve(problem, options, **FindBackend(device), nullptr, nullptr);
    };
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult fixed,
                                  solve({.method = Method::kMagnitude, .alpha = 1, .joint = true}));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult alps, solve({.method = Method::kAlps}));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult start,
                                  solve({.method = Method::kMagnitude, .reconstruct = true}));
    ASSERT_LT(alps.reconstructed_loss, start.reconstructed_loss);
    EXPECT_NE(fixed.mask, start.mask);
    // A few iterations are not all of them.
    EXPECT_LT(fixed.reconstructed_loss, 1.1 * alps.reconstructed_loss);
    EXPECT_LT(fixed.reconstructed_loss, start.reconstructed_loss);
    EXPECT_EQ(fixed.joint.start_loss, start.reconstructed_loss);
    EXPECT_EQ(fixed.candidate, CandidateKind::kJoint);
  }
}

}  // namespace
}  // namespace sparsefw
