// The joint search of every engine that has one, against supports solved here.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/core/engines/joint_search.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::EngineKind;
using ::sparsefw::testing::ExpectFits;
using ::sparsefw::testing::IsFloat32;
using ::sparsefw::testing::LossOf;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::NameOf;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::Rounding;
using ::sparsefw::testing::Search;
using ::sparsefw::testing::Searched;
using ::sparsefw::testing::StartingPoint;
using ::sparsefw::testing::TypedMatrix;

// L*(S) of one row: what is left of w H w after Gauss elimination of the kept columns.
double BestLoss(const Matrix<double>& h, const double* w, const std::vector<bool>& kept) {
  const int64_t n = h.rows();
  Matrix<double> a(n + 1, n + 1);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      a(i, j) = h(i, j);
      a(i, n) += h(i, j) * w[j];
    }
    a(n, i) = a(i, n);
    a(n, n) += w[i] * a(i, n);
  }
  for (int64_t k = 0; k < n; ++k) {
    if (!kept[static_cast<size_t>(k)]) continue;
    for (int64_t i = 0; i <= n; ++i) {
      if (i == k) continue;
      const double factor = a(i, k) / a(k, k);
      for (int64_t j = 0; j <= n; ++j) a(i, j) -= factor * a(k, j);
    }
  }
  return a(n, n);
}

std::vector<bool> KeptOf(const Mask& mask, int64_t row) {
  std::vector<bool> kept;
  for (int64_t j = 0; j < mask.cols(); ++j) kept.push_back(mask.Get(row, j));
  return kept;
}

double BestLoss(const Matrix<double>& h, const Matrix<double>& w, const Mask& mask) {
  double loss = 0;
  for (int64_t row = 0; row < w.rows(); ++row) loss += BestLoss(h, w.row(row), KeptOf(mask, row));
  return loss;
}

class JointTest : public ::testing::TestWithParam<EngineKind> {};

INSTANTIATE_TEST_SUITE_P(Engines, JointTest, ::testing::ValuesIn(testing::kJointEngines),
                         [](const auto& test) { return NameOf(test.param); });
//     |1 .9 0|
// G = |.9 1 0|, w = (1 1 1.2), one kept. Wanda keeps the last and loses 1 + 1 + 1.8. Keeping
//     |0  0 1|  the first with the weight 1 + .9 loses 1 - .81 + 1.44.
TEST_P(JointTest, HandWorked) {
  SPARSEFW_NEED_DEVICE(GetParam());
  Matrix<float> weights(1, 3);
  weights(0, 0) = weights(0, 1) = 1;
  weights(0, 2) = 1.2F;
  Matrix<double> gram(3, 3);
  gram(0, 0) = gram(1, 1) = gram(2, 2) = 1;
  gram(0, 1) = gram(1, 0) = 0.9;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(weights.view(), gram.view(), Pattern::PerRow(0.67), {}, 0));
  ASSERT_EQ(testing::RowsOf(start.warm), std::vector<std::string>{"001"});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched searched,
                                Search(GetParam(), start, {.options = {0, 0}}));
  EXPECT_EQ(testing::RowsOf(searched.result.mask), std::vector<std::string>{"100"});
  EXPECT_NEAR(searched.result.weights(0, 0), 1.9, 1e-6);
  EXPECT_NEAR(searched.start_loss, 3.8, 1e-6);
  EXPECT_NEAR(searched.result.loss, 1.63, 1e-6);
  EXPECT_EQ(searched.result.exchanges, 1);
  EXPECT_TRUE(searched.result.converged);
}

// All supports of one row, and all single exchanges of the result.
TEST_P(JointTest, NotBelowTheBestOfAllSupportsAndNoExchangeImprovesIt) {
  SPARSEFW_NEED_DEVICE(GetParam());
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const RandomLayer layer = MakeRandomLayer(
        {.rows = 1, .cols = 10, .correlation = seed % 2 == 0 ? 0.5 : 0.95, .seed = seed});
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const StartingPoint start,
        MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.6), {}, 0));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched searched, Search(GetParam(), start));
    EXPECT_TRUE(searched.result.converged);
    ExpectFits(start, searched.result);
    const Matrix<double> w = testing::ToDouble(start.weights);
    const Matrix<double> h = testing::ToDouble(start.gram);
    double best = std::numeric_limits<double>::infinity();
    for (unsigned bits = 0; bits < (1U << 10); ++bits) {
      if (std::popcount(bits) != 4) continue;
      std::vector<bool> kept;
      for (unsigned j = 0; j < 10; ++j) kept.push_back((bits >> j & 1U) != 0);
      best = std::min(best, BestLoss(h, w.row(0), kept));
    }
    const double rounding = IsFloat32(GetParam()) ? 1e-3 : 1e-6;
    EXPECT_GE(searched.result.loss, best * (1 - 1e-6));
    const std::vector<bool> kept = KeptOf(searched.result.mask, 0);
    const double reached = BestLoss(h, w.row(0), kept);
    EXPECT_LE(searched.result.loss, reached * (1 + rounding));
    const double start_loss = BestLoss(h, w.row(0), KeptOf(start.warm, 0));
    for (size_t q = 0; q < 10; ++q) {
      for (size_t p = 0; p < 10; ++p) {
        if (!kept[q] || kept[p]) continue;
        std::vector<bool> other = kept;
        other[q] = false;
        other[p] = true;
        EXPECT_GE(BestLoss(h, w.row(0), other), reached - rounding * start_loss) << q << " " << p;
      }
    }
  }
}

// The same where one budget serves all rows, each of which keeps its count, and where groups are
// small.
TEST_P(JointTest, NoExchangeWithinARowImprovesIt) {
  SPARSEFW_NEED_DEVICE(GetParam());
  for (const Pattern& pattern : {Pattern::Unstructured(0.55), Pattern::KeepOfGroup(2, 4)}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(::testing::Message() << ToString(pattern) << " " << seed);
      const RandomLayer layer = MakeRandomLayer({.rows = 4, .cols = 12, .seed = seed});
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const StartingPoint start,
          MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, 0));
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched searched, Search(GetParam(), start));
      EXPECT_TRUE(searched.result.converged);
      ExpectFits(start, searched.result);
      const Matrix<double> w = testing::ToDouble(start.weights);
      const Matrix<double> h = testing::ToDouble(start.gram);
      const double reached = BestLoss(h, w, searched.result.mask);
      const double slack = (IsFloat32(GetParam()) ? 1e-3 : 1e-5) * BestLoss(h, w, start.warm);
      const bool whole = pattern.kind == Pattern::Kind::kUnstructured;
      for (int64_t q = 0; q < 48; ++q) {
        for (int64_t p = 0; p < 48; ++p) {
          if (whole ? q / 12 != p / 12 : q / 4 != p / 4) continue;
          Mask other = searched.result.mask;
          if (!other.Get(q / 12, q % 12) || other.Get(p / 12, p % 12)) continue;
          other.Set(q / 12, q % 12, false);
          other.Set(p / 12, p % 12, true);
          EXPECT_GE(BestLoss(h, w, other), reached - slack) << q << " " << p;
        }
      }
      for (int64_t row = 0; row < 4; ++row) {
        EXPECT_EQ(searched.result.mask.CountKeptInRow(row), start.warm.CountKeptInRow(row));
      }
    }
  }
}

struct Shape {
  Pattern pattern;
  double alpha;
  DType dtype;
};

TEST_P(JointTest, EveryPatternAlphaAndDType) {
  SPARSEFW_NEED_DEVICE(GetParam());
  const RandomLayer layer = MakeRandomLayer({.rows = 20, .cols = 48, .seed = 3});
  for (const Pattern& pattern :
       {Pattern::PerRow(0.6), Pattern::Unstructured(0.6), Pattern::KeepOfGroup(2, 4)}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      double less_fixed = 0;
      for (const double alpha : {0.0, 0.5, 0.9, 1.0}) {
        SCOPED_TRACE(::testing::Message()
                     << ToString(pattern) << " " << DTypeName(dtype) << " " << alpha);
        const TypedMatrix weights(layer.weights.view(), dtype, /*padding=*/3);
        SPARSEFW_ASSERT_OK_AND_ASSIGN(
            const StartingPoint start,
            MakeStartingPoint(weights.view(), layer.gram.view(), pattern, {}, alpha));
        SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched searched,
                                      Search(GetParam(), start, {.options = {}}));
        const JointResult& result = searched.result;
        ExpectFits(start, result);
        EXPECT_TRUE(result.converged);
        EXPECT_LE(result.loss, searched.start_loss * (1 + Rounding(GetParam())));
        EXPECT_NEAR(result.loss, LossOf(start, testing::ToDouble(result.weights.view())),
                    Rounding(GetParam()) * result.loss);
        const TypedMatrix rounded(result.weights.view(), dtype);
        const Matrix<float> again = testing::ToFloat32(rounded.view());
        EXPECT_TRUE(
            std::equal(again.span().begin(), again.span().end(), result.weights.span().begin()));
        // Only what is not fixed can be exchanged.
        if (alpha == 1) {
          EXPECT_EQ(result.mask, start.warm);
        }
        if (alpha == 0 && dtype != DType::kBF16) {
          EXPECT_LT(result.loss, 0.9 * searched.start_loss);
        }
        if (alpha == 0.9) {
          EXPECT_GT(result.loss, less_fixed);
        }
        if (alpha == 0) less_fixed = result.loss;
      }
    }
  }
}

TEST_P(JointTest, WeightsSolveTheDampedProblem) {
  SPARSEFW_NEED_DEVICE(GetParam());
  const RandomLayer layer = MakeRandomLayer({.rows = 16, .cols = 40, .seed = 4});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.6), {}, 0));
  const Matrix<double> w = testing::ToDouble(start.weights);
  const Matrix<double> gram = testing::ToDouble(start.gram);
  double mean = 0;
  for (int64_t j = 0; j < 40; ++j) mean += gram(j, j) / 40;
  for (const double damping : {0.0, 0.03}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const Searched searched,
        Search(GetParam(), start, {.options = {.damping = damping, .excluded = 0}}));
    int changed = 0;
    for (int64_t row = 0; row < 16; ++row) {
      if (KeptOf(searched.result.mask, row) == KeptOf(start.warm, row)) continue;
      ++changed;
      for (int64_t p = 0; p < 40; ++p) {
        if (!searched.result.mask.Get(row, p)) continue;
        double residual = 0;
        double products = 0;
        for (int64_t j = 0; j < 40; ++j) {
          const double h = gram(j, p) + (j == p ? damping * mean : 0);
          residual += (w(row, j) - static_cast<double>(searched.result.weights(row, j))) * h;
          products += std::fabs(w(row, j) * h);
        }
        EXPECT_NEAR(residual, 0, 1e-4 * products) << row << " " << p;
      }
    }
    EXPECT_GT(changed, 8);
  }
}

TEST_P(JointTest, DampingIsOfTheSearch) {
  SPARSEFW_NEED_DEVICE(GetParam());
  const RandomLayer layer = MakeRandomLayer({.rows = 16, .cols = 40, .seed = 4});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.6), {}, 0.25));
  std::vector<Mask> masks;
  for (const double damping : {0.0, 0.001, 0.3}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const Searched searched,
        Search(GetParam(), start, {.options = {.damping = damping, .excluded = 0}}));
    ExpectFits(start, searched.result);
    EXPECT_LE(searched.result.loss, searched.start_loss * (1 + Rounding(GetParam())));
    masks.push_back(searched.result.mask);
  }
  EXPECT_NE(masks[0], masks[2]);
}
// A column that is excluded enters where it gains more than the cheapest kept one costs.
TEST_P(JointTest, ExcludedColumnsEnterWhereTheyPay) {
  SPARSEFW_NEED_DEVICE(GetParam());
  RandomLayer layer = MakeRandomLayer({.rows = 1, .cols = 24, .correlation = 0, .seed = 7});
  // Next to nothing by its saliency, yet the best column there is once others are gone.
  layer.weights(0, 5) = 1e-4F;
  for (int64_t j = 10; j < 20; ++j) {
    layer.gram(5, j) = layer.gram(j, 5) = 0.25 * std::sqrt(layer.gram(5, 5) * layer.gram(j, j));
    layer.weights(0, j) = 1;
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      StartingPoint start,
      MakeStartingPoint(layer.weights.view(), layer.gram.view(), Pattern::PerRow(0.75), {}, 0));
  ASSERT_FALSE(start.warm.Get(0, 5));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched searched,
                                Search(GetParam(), start, {.options = {.excluded = 0.3}}));
  EXPECT_TRUE(searched.result.mask.Get(0, 5));
  EXPECT_TRUE(searched.result.converged);
}
// Both end in a local optimum of their own.
TEST(JointEnginesTest, EndNearEachOther) {
  const RandomLayer layer = MakeRandomLayer({.rows = 24, .cols = 96, .seed = 11});
  for (const Pattern& pattern :
       {Pattern::PerRow(0.6), Pattern::Unstructured(0.6), Pattern::KeepOfGroup(2, 4)}) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const StartingPoint start,
        MakeStartingPoint(layer.weights.view(), layer.gram.view(), pattern, {}, 0.25));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched reference, Search(EngineKind::kReference, start));
    for (const EngineKind kind : {EngineKind::kCpuFloat64, EngineKind::kCpuFloat32}) {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const Searched cpu, Search(kind, start));
      EXPECT_NEAR(cpu.result.loss, reference.result.loss, 0.05 * reference.result.loss)
          << ToString(pattern) << " " << NameOf(kind);
    }
  }
}

}  // namespace
}  // namespace sparsefw
