// Shrinkage: a solve with H = (1 - s) G + s diag(G) in the place of G, and its loss with G itself.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/solver.h"
#include "sparsefw/sweep.h"
#include "tests/core/solver/memory_checkpoints.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::ExpectSameResult;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::NaiveLoss;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::TypedMatrix;

constexpr Method kMethods[] = {Method::kMagnitude, Method::kWanda,    Method::kRia,
                               Method::kSparseGpt, Method::kSparseFw, Method::kAlps};

const Pattern kPatterns[] = {Pattern::PerRow(0.6), Pattern::Unstructured(0.6),
                             Pattern::KeepOfGroup(2, 4)};

Problem ProblemOf(ConstMatrixView weights, ConstMatrixView gram, const Pattern& pattern = {}) {
  return {.weights = weights, .gram = gram, .pattern = pattern, .saliency = {}};
}

// In the dtype of G, as documented.
template <typename Real>
Matrix<Real> Shrunk(ConstMatrixView gram, double shrinkage) {
  Matrix<Real> shrunk(gram.rows(), gram.cols());
  for (int64_t i = 0; i < gram.rows(); ++i) {
    for (int64_t j = 0; j < gram.cols(); ++j) {
      const Real value = gram.row<Real>(i)[j];
      shrunk(i, j) = i == j ? value : static_cast<Real>((1 - shrinkage) * value);
    }
  }
  return shrunk;
}

double LossOf(const Matrix<float>& weights, const Matrix<double>& gram, const SolveResult& result) {
  if (result.weights.size() == 0) return NaiveLoss(weights.view(), gram.view(), result.mask);
  Matrix<float> difference(weights.rows(), weights.cols());
  for (int64_t n = 0; n < difference.size(); ++n) {
    difference.data()[n] = weights.data()[n] - result.weights.data()[n];
  }
  return NaiveLoss(difference.view(), gram.view(), Mask(difference.rows(), difference.cols()));
}

class ShrinkageTest : public ::testing::TestWithParam<const char*> {
 protected:
  const Backend& backend() const { return **FindBackend(GetParam()); }
  absl::StatusOr<SolveResult> Run(ConstMatrixView gram, const Pattern& pattern,
                                  const SolveOptions& options) const {
    return Solve(ProblemOf(layer_.weights.view(), gram, pattern), options, backend(), nullptr,
                 nullptr);
  }
  void ExpectUnshrunk(const UnshrunkLosses& losses, const SolveResult& result,
                      const Pattern& pattern, Method method) const {
    const double rounding = 1e-6 * result.full_loss;
    EXPECT_NEAR(losses.result, LossOf(layer_.weights, layer_.gram, result), rounding);
    const Mask none(layer_.weights.rows(), layer_.weights.cols());
    EXPECT_NEAR(losses.full, NaiveLoss(layer_.weights.view(), layer_.gram.view(), none), rounding);
    if (HasOwnWeights(method)) return;
    // Its scores are those of G's diagonal, which stays.
    const Method start = method == Method::kSparseFw ? Method::kWanda : method;
    const absl::StatusOr<SolveResult> warm = Run(layer_.gram.view(), pattern, {.method = start});
    EXPECT_NEAR(losses.warm_start, warm.value().final_loss, rounding);
  }
  // The solve of G with a shrinkage is that of H, whatever the method.
  template <typename Real>
  void ExpectSolvesShrunk(DType dtype) {
    const TypedMatrix gram(layer_.gram.view(), dtype, /*padding=*/3);
    const Matrix<Real> shrunk = Shrunk<Real>(gram.view(), 0.1);
    for (const Method method : kMethods) {
      for (const Pattern& pattern : kPatterns) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(method) << " " << pattern.sparsity);
        SolveOptions options = {.method = method, .alpha = 0.5, .iterations = 20};
        options.swaps = !HasOwnWeights(method);
        options.reconstruct = method == Method::kWanda;
        options.joint = method == Method::kRia;
        SPARSEFW_ASSERT_OK_AND_ASSIGN(SolveResult expected, Run(shrunk.view(), pattern, options));
        EXPECT_FALSE(expected.unshrunk.has_value());
        options.shrinkage = 0.1;
        SPARSEFW_ASSERT_OK_AND_ASSIGN(SolveResult actual, Run(gram.view(), pattern, options));
        ExpectSameResult(actual, expected);
        ASSERT_TRUE(actual.unshrunk.has_value());
        ExpectUnshrunk(*actual.unshrunk, actual, pattern, method);
      }
    }
  }

  const RandomLayer layer_ = MakeRandomLayer({.rows = 16, .cols = 40, .seed = 3});
};

INSTANTIATE_TEST_SUITE_P(Backends, ShrinkageTest, ::testing::Values("cpu", "reference"),
                         [](const auto& test) { return test.param; });

TEST_P(ShrinkageTest, SolvesTheShrunkProblemInFloat64) { ExpectSolvesShrunk<double>(DType::kF64); }
TEST_P(ShrinkageTest, SolvesTheShrunkProblemInFloat32) { ExpectSolvesShrunk<float>(DType::kF32); }

// Without correlations the best mask is Wanda's, and new weights are the old ones.
TEST_P(ShrinkageTest, NearOneLeavesWandasMask) {
  for (const Pattern& pattern : kPatterns) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult wanda,
                                  Run(layer_.gram.view(), pattern, {.method = Method::kWanda}));
    SolveOptions options = {.shrinkage = 1 - 1e-9, .alpha = 0, .iterations = 20, .swaps = true};
    options.reconstruct = true;
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult result,
                                  Run(layer_.gram.view(), pattern, options));
    EXPECT_EQ(result.mask, wanda.mask);
    for (int64_t row = 0; row < layer_.weights.rows(); ++row) {
      for (int64_t col = 0; col < layer_.weights.cols(); ++col) {
        const float kept = wanda.mask.Get(row, col) ? layer_.weights(row, col) : 0;
        EXPECT_NEAR(result.weights(row, col), kept, 1e-5 * std::abs(layer_.weights(row, col)));
      }
    }
  }
}

TEST_P(ShrinkageTest, NewWeightsFitOtherInputsBetter) {
  const RandomLayer layer = MakeRandomLayer({.rows = 32, .cols = 96, .tokens = 4096, .seed = 9});
  // Little more tokens than inputs.
  const Matrix<double> gram = testing::GramOf(layer.activations.view().Rows(0, 128));
  const Matrix<double> other = testing::GramOf(layer.activations.view().Rows(128, 3968));
  const auto held_out = [&](double shrinkage) {
    SolveOptions options = {.method = Method::kWanda, .shrinkage = shrinkage, .reconstruct = true};
    const absl::StatusOr<SolveResult> result =
        Solve(ProblemOf(layer.weights.view(), gram.view(), Pattern::PerRow(0.6)), options,
              backend(), nullptr, nullptr);
    return LossOf(layer.weights, other, result.value());
  };
  EXPECT_LT(held_out(0.1), 0.95 * held_out(0));
}

TEST_P(ShrinkageTest, PointsOfASweepShareIt) {
  class Outcomes final : public SweepObserver {
   public:
    void OnReport(const ProgressReport&) override {}
    absl::Status OnResult(size_t, absl::StatusOr<SolveResult> result) override {
      if (!result.ok()) return result.status();
      results.push_back(*std::move(result));
      return absl::OkStatus();
    }
    std::vector<SolveResult> results;
  } outcomes;
  std::vector<SweepPoint> points;
  for (const Pattern& pattern : kPatterns) {
    points.push_back({pattern, {.shrinkage = 0.25, .iterations = 20}});
  }
  std::vector<SweepPoint> asked = points;
  asked.back().options.shrinkage = 0;  // the first one's counts
  const Problem problem = ProblemOf(layer_.weights.view(), layer_.gram.view());
  SPARSEFW_ASSERT_OK(SolveSweep(problem, asked, backend(), outcomes, nullptr));
  ASSERT_EQ(outcomes.results.size(), points.size());
  for (size_t n = 0; n < points.size(); ++n) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const SolveResult alone,
                                  Run(layer_.gram.view(), points[n].pattern, points[n].options));
    ExpectSameResult(outcomes.results[n], alone);
    EXPECT_EQ(outcomes.results[n].unshrunk->result, alone.unshrunk->result);
  }
}

TEST_P(ShrinkageTest, IsTheSameForAnyNumberOfThreads) {
  const RandomLayer wide = MakeRandomLayer({.rows = 200, .cols = 64, .seed = 4});
  std::vector<double> losses;
  for (const int threads : {1, 3}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const SolveResult result,
        Solve(ProblemOf(wide.weights.view(), wide.gram.view(), Pattern::PerRow(0.5)),
              {.shrinkage = 0.3, .iterations = 10, .threads = threads}, backend(), nullptr,
              nullptr));
    losses.push_back(result.unshrunk->result);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

}  // namespace
}  // namespace sparsefw
