// Swaps and reconstruction through Solve: on random correlated layers and on
// layers of a real model, with every method.
#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "sparsefw/problem.h"
#include "sparsefw/safetensors.h"
#include "sparsefw/solver.h"
#include "sparsefw/status_macros.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::IsSubset;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::NaiveLoss;
using ::sparsefw::testing::RandomLayer;

const std::vector<Pattern>& Patterns() {
  static const std::vector<Pattern> patterns = {Pattern::Unstructured(0.6), Pattern::PerRow(0.6),
                                                Pattern::KeepOfGroup(2, 4)};
  return patterns;
}

Problem ProblemOf(const RandomLayer& layer, const Pattern& pattern) {
  return {layer.weights.view(), layer.gram.view(), pattern, ConstMatrixView(), nullptr};
}

absl::StatusOr<Mask> FixedOf(const RandomLayer& layer, const Pattern& pattern,
                             const SaliencyOptions& options, double alpha) {
  std::vector<double> diagonal;
  for (int64_t i = 0; i < layer.gram.rows(); ++i) diagonal.push_back(layer.gram(i, i));
  SPARSEFW_ASSIGN_OR_RETURN(const Matrix<float> saliency,
                            ComputeSaliency(layer.weights.view(), diagonal, options));
  SPARSEFW_ASSIGN_OR_RETURN(const Mask warm, TopScores(saliency.view(), pattern));
  return FixedSet(saliency.view(), warm, pattern, alpha);
}

class SolverRefineTest : public ::testing::TestWithParam<std::string> {
 protected:
  absl::StatusOr<SolveResult> Run(const Problem& problem, const SolveOptions& options) const {
    return Solve(problem, options, **FindBackend(GetParam()), nullptr, nullptr);
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, SolverRefineTest, ::testing::Values("cpu", "reference"),
                         [](const auto& test) { return test.param; });

struct MethodCase {
  Method method;
  SaliencyMethod saliency;
};
constexpr MethodCase kMethods[] = {{Method::kMagnitude, SaliencyMethod::kMagnitude},
                                   {Method::kWanda, SaliencyMethod::kWanda},
                                   {Method::kRia, SaliencyMethod::kRia},
                                   {Method::kSparseFw, SaliencyMethod::kWanda}};

TEST_P(SolverRefineTest, LowerLossWithSwapsThanWithout) {
  int gave_up_fixed = 0;
  for (const uint64_t seed : {1, 2}) {
    const RandomLayer layer = MakeRandomLayer({.rows = 24, .cols = 48, .seed = seed});
    for (const Pattern& pattern : Patterns()) {
      for (const MethodCase& method : kMethods) {
        for (const bool keep_fixed : {true, false}) {
          SCOPED_TRACE(::testing::Message()
                       << seed << " " << ToString(pattern) << " method "
                       << static_cast<int>(method.method) << " keep_fixed " << keep_fixed);
          SolveOptions options = {
              .method = method.method, .alpha = 0.5, .iterations = 30, .keep_fixed = keep_fixed};
          SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult plain,
                                        Run(ProblemOf(layer, pattern), options));
          options.swaps = true;
          options.reconstruct = true;
          SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult refined,
                                        Run(ProblemOf(layer, pattern), options));
          EXPECT_LT(refined.final_loss, plain.final_loss);
          EXPECT_EQ(refined.warm_start_loss, plain.warm_start_loss);
          EXPECT_EQ(refined.rounded_loss, plain.rounded_loss);
          EXPECT_EQ(refined.candidate, CandidateKind::kRefined);
          EXPECT_GT(refined.swaps, 0);
          EXPECT_EQ(plain.swaps, 0);
          EXPECT_EQ(refined.stop_cause, plain.stop_cause);
          SPARSEFW_EXPECT_OK(ValidateMaskCounts(refined.mask, pattern, "refined"));
          EXPECT_EQ(refined.kept_count, refined.mask.CountKept());
          EXPECT_NEAR(refined.final_loss,
                      NaiveLoss(layer.weights.view(), layer.gram.view(), refined.mask),
                      1e-11 * refined.full_loss);
          EXPECT_LE(refined.lower_bound, refined.final_loss);
          SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask fixed,
                                        FixedOf(layer, pattern, {.method = method.saliency}, 0.5));
          if (!IsSubset(fixed, refined.mask)) {
            EXPECT_FALSE(keep_fixed);
            EXPECT_EQ(refined.lower_bound, 0);
            ++gave_up_fixed;
          } else if (method.method == Method::kSparseFw) {
            EXPECT_GT(refined.lower_bound, 0);
          }
          EXPECT_LT(refined.reconstructed_loss, refined.final_loss);
          EXPECT_GT(refined.reconstructed_loss, 0);
          EXPECT_EQ(plain.weights.size(), 0);
          ASSERT_EQ(refined.weights.size(), layer.weights.size());
          for (int64_t i = 0; i < refined.weights.size(); ++i) {
            EXPECT_TRUE(refined.mask.Get(i / 48, i % 48) || refined.weights.data()[i] == 0);
          }
        }
      }
    }
  }
  EXPECT_GT(gave_up_fixed, 0);
}

TEST_P(SolverRefineTest, ReconstructionAloneLeavesTheMask) {
  const RandomLayer layer = MakeRandomLayer({.rows = 8, .cols = 24, .seed = 3});
  for (const Pattern& pattern : Patterns()) {
    SolveOptions options = {.method = Method::kWanda};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult plain, Run(ProblemOf(layer, pattern), options));
    options.reconstruct = true;
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result,
                                  Run(ProblemOf(layer, pattern), options));
    EXPECT_EQ(result.mask, plain.mask);
    EXPECT_EQ(result.final_loss, plain.final_loss);
    EXPECT_LT(result.reconstructed_loss, plain.final_loss);
  }
}

TEST_P(SolverRefineTest, EverythingFixedLeavesNothingToSwap) {
  const RandomLayer layer = MakeRandomLayer({.rows = 8, .cols = 24, .seed = 3});
  for (const Pattern& pattern : Patterns()) {
    for (const Method method : {Method::kWanda, Method::kSparseFw}) {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const SolveResult result,
          Run(ProblemOf(layer, pattern),
              {.method = method, .alpha = 1, .iterations = 2, .swaps = true}));
      EXPECT_EQ(result.swaps, 0);
      EXPECT_EQ(result.candidate, CandidateKind::kWarmStart);
      EXPECT_EQ(result.final_loss, result.warm_start_loss);
    }
  }
}

TEST_P(SolverRefineTest, NeverWorseThanTheWarmStart) {
  for (const uint64_t seed : {1, 2, 3}) {
    const RandomLayer layer =
        MakeRandomLayer({.rows = 10, .cols = 24, .correlation = 0.99, .seed = seed});
    for (const Pattern& pattern : Patterns()) {
      for (const double alpha : {0.0, 0.9, 1.0}) {
        for (const bool keep_fixed : {true, false}) {
          SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result,
                                        Run(ProblemOf(layer, pattern), {.alpha = alpha,
                                                                        .iterations = 1,
                                                                        .swaps = true,
                                                                        .keep_fixed = keep_fixed,
                                                                        .reconstruct = true}));
          EXPECT_LE(result.final_loss, result.warm_start_loss);
          EXPECT_LE(result.reconstructed_loss, result.final_loss);
        }
      }
    }
  }
}

TEST_P(SolverRefineTest, SameResultForAnyNumberOfThreads) {
  const RandomLayer layer = MakeRandomLayer({.rows = 120, .cols = 24, .seed = 7});
  for (const Pattern& pattern : Patterns()) {
    SolveOptions options = {
        .alpha = 0.5, .iterations = 20, .swaps = true, .reconstruct = true, .threads = 1};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult once, Run(ProblemOf(layer, pattern), options));
    options.threads = 4;
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult again, Run(ProblemOf(layer, pattern), options));
    EXPECT_EQ(again.mask, once.mask);
    EXPECT_EQ(again.final_loss, once.final_loss);
    EXPECT_EQ(again.reconstructed_loss, once.reconstructed_loss);
  }
}

// The result of what was done in time, whatever that was, on the real clock.
TEST_P(SolverRefineTest, DeadlinesAnywhereGiveALegalMask) {
  const RandomLayer layer = MakeRandomLayer({.rows = 96, .cols = 96, .seed = 8});
  for (const int64_t us : {300, 1000, 3000, 10'000, 30'000}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* backend, FindBackend(GetParam()));
    const absl::StatusOr<SolveResult> result =
        Solve(ProblemOf(layer, Pattern::Unstructured(0.6)),
              {.method = Method::kWanda,
               .alpha = 0,
               .swaps = true,
               .reconstruct = true,
               .deadline = absl::Now() + absl::Microseconds(us)},
              *backend, nullptr, nullptr);
    if (!result.ok()) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(result.status())) << result.status();
      continue;
    }
    EXPECT_LE(result->final_loss, result->warm_start_loss);
    EXPECT_LE(result->reconstructed_loss, result->final_loss);
    SPARSEFW_EXPECT_OK(ValidateMaskCounts(result->mask, Pattern::Unstructured(0.6), "result"));
    EXPECT_NEAR(result->final_loss,
                NaiveLoss(layer.weights.view(), layer.gram.view(), result->mask),
                1e-11 * result->full_loss);
  }
}

// A layer of the fixture, whose Gram matrix may have to be made.
struct FixtureLayer {
  static absl::StatusOr<FixtureLayer> Read(const std::string& name) {
    const std::string folder = std::string(SPARSEFW_SOURCE_DIR) + "/tests/fixtures/minilm/";
    FixtureLayer layer;
    absl::StatusOr<std::shared_ptr<const SafetensorsFile>> file =
        SafetensorsFile::Open(folder + name + ".safetensors");
    const bool activations = !file.ok();
    if (activations) file = SafetensorsFile::Open(folder + "activations/" + name + ".safetensors");
    SPARSEFW_RETURN_IF_ERROR(file.status());
    layer.file = *std::move(file);
    SPARSEFW_ASSIGN_OR_RETURN(const auto* weight, layer.file->Find(name + ".weight"));
    SPARSEFW_ASSIGN_OR_RETURN(layer.problem.weights, weight->AsMatrix());
    SPARSEFW_ASSIGN_OR_RETURN(const auto* inputs,
                              layer.file->Find(activations ? "activations" : "gram"));
    SPARSEFW_ASSIGN_OR_RETURN(layer.problem.gram, inputs->AsMatrix());
    if (!activations) return layer;
    SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, FindBackend("cpu"));
    SPARSEFW_ASSIGN_OR_RETURN(const auto sum,
                              backend->CreateGramAccumulator(layer.problem.weights.cols(), 2));
    SPARSEFW_RETURN_IF_ERROR(sum->Add(layer.problem.gram));
    SPARSEFW_ASSIGN_OR_RETURN(layer.gram, sum->Snapshot());
    layer.problem.gram = layer.gram.view();
    return layer;
  }

  std::shared_ptr<const SafetensorsFile> file;
  Matrix<double> gram;
  Problem problem;
};

class FixtureTest : public ::testing::TestWithParam<std::tuple<std::string, Pattern>> {};

TEST_P(FixtureTest, LowerLossWithSwapsThanWithout) {
  const auto& [name, pattern] = GetParam();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const FixtureLayer layer, FixtureLayer::Read(name));
  Problem problem = layer.problem;
  // Rows are no easier for being fewer, and the wide layer takes long.
  problem.weights = problem.weights.Rows(0, std::min<int64_t>(24, problem.weights.rows()));
  problem.pattern = pattern;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Backend* backend, FindBackend("cpu"));
  for (const Method method : {Method::kWanda, Method::kSparseFw}) {
    SCOPED_TRACE(static_cast<int>(method));
    SolveOptions options = {.method = method,
                            .alpha = method == Method::kWanda ? 0.5 : 0.9,
                            .iterations = 60,
                            .step_rule = StepRule::kLineSearch,
                            .reconstruct = true};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult plain,
                                  Solve(problem, options, *backend, nullptr, nullptr));
    options.swaps = true;
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult refined,
                                  Solve(problem, options, *backend, nullptr, nullptr));
    EXPECT_LT(refined.final_loss, plain.final_loss);
    EXPECT_GE(refined.final_loss, refined.lower_bound);
    EXPECT_EQ(refined.candidate, CandidateKind::kRefined);
    SPARSEFW_EXPECT_OK(ValidateMaskCounts(refined.mask, pattern, "refined"));
    EXPECT_LT(plain.reconstructed_loss, plain.final_loss);
    EXPECT_LT(refined.reconstructed_loss, refined.final_loss);
    const auto rounded = [](float value) { return ToFloat(ToHalf(value)); };
    EXPECT_TRUE(std::all_of(refined.weights.span().begin(), refined.weights.span().end(),
                            [&](float value) { return value == rounded(value); }));
  }
}

INSTANTIATE_TEST_SUITE_P(
    MiniLm, FixtureTest,
    ::testing::Combine(::testing::Values("encoder.layer.0.attention.self.query",
                                         "encoder.layer.2.intermediate.dense",
                                         "encoder.layer.2.output.dense",
                                         "encoder.layer.5.attention.output.dense"),
                       ::testing::ValuesIn(Patterns())),
    [](const auto& test) {
      std::string name = std::get<0>(test.param) + "_" + ToString(std::get<1>(test.param));
      std::replace_if(
          name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
      return name;
    });

}  // namespace
}  // namespace sparsefw
