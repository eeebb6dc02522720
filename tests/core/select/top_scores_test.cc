// TopScores and FixedSet against a full sort, with and without ties.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "core/src/parallel/parallel_context.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/problem.h"
#include "sparsefw/saliency.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::absl::StatusCode;
using ::sparsefw::testing::IsSubset;
using ::sparsefw::testing::MaskFromRows;
using ::sparsefw::testing::Random;
using ::sparsefw::testing::RowsOf;
using ::sparsefw::testing::StatusIs;
using ::testing::ElementsAre;

// Keeps the end of a stable ascending sort of [begin, end) of the row-major coordinates.
void KeepEndOfSort(const Matrix<float>& scores, const Mask* candidates, int64_t begin, int64_t end,
                   int64_t count, Mask& kept) {
  std::vector<int64_t> order;
  for (int64_t i = begin; i < end; ++i) {
    if (candidates == nullptr || candidates->Get(i / scores.cols(), i % scores.cols())) {
      order.push_back(i);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return scores.data()[a] < scores.data()[b]; });
  for (auto i = order.end() - count; i != order.end(); ++i) {
    kept.Set(*i / scores.cols(), *i % scores.cols(), true);
  }
}

Mask ExpectedTop(const Matrix<float>& scores, const Pattern& pattern) {
  const Groups groups = GroupsOf(pattern, scores.rows(), scores.cols());
  const int64_t size = groups.whole_matrix ? scores.size() : groups.group_cols;
  Mask kept(scores.rows(), scores.cols());
  for (int64_t begin = 0; begin < scores.size(); begin += size) {
    KeepEndOfSort(scores, nullptr, begin, begin + size, groups.capacity, kept);
  }
  return kept;
}

Mask ExpectedFixed(const Matrix<float>& scores, const Mask& warm, const Pattern& pattern,
                   double alpha) {
  const bool whole = pattern.kind == Pattern::Kind::kUnstructured;
  const int64_t size = whole ? scores.size() : scores.cols();
  const int64_t kept_of_run = whole ? warm.CountKept() : warm.CountKeptInRow(0);
  Mask kept(scores.rows(), scores.cols());
  for (int64_t begin = 0; begin < scores.size(); begin += size) {
    KeepEndOfSort(scores, &warm, begin, begin + size,
                  static_cast<int64_t>(alpha * static_cast<double>(kept_of_run)), kept);
  }
  return kept;
}

// `distinct` 0: no ties to speak of.
Matrix<float> RandomScores(int64_t rows, int64_t cols, int64_t distinct, uint64_t seed) {
  Random random(seed);
  Matrix<float> scores(rows, cols);
  for (float& score : scores.span()) {
    score = distinct == 0 ? static_cast<float>(random.Normal())
                          : static_cast<float>(random.Below(distinct)) - 1;
    if (score == 0 && random.Below(2) == 0) score = -0.0F;
  }
  return scores;
}

class TopScoresTest : public ::testing::TestWithParam<std::tuple<Pattern, int64_t>> {};

TEST_P(TopScoresTest, IsTheEndOfAStableSort) {
  const auto& [pattern, distinct] = GetParam();
  for (const uint64_t seed : {1, 2, 3}) {
    for (const int64_t rows : {1, 5, 40}) {
      SCOPED_TRACE(ToString(pattern) + " seed " + std::to_string(seed));
      const Matrix<float> scores = RandomScores(rows, 72, distinct, seed);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask kept, TopScores(scores.view(), pattern));
      EXPECT_EQ(RowsOf(kept), RowsOf(ExpectedTop(scores, pattern)));
      SPARSEFW_EXPECT_OK(ValidateMaskCounts(kept, pattern, "kept"));
      for (const double alpha : {0.0, 0.1, 0.5, 0.9, 1.0}) {
        SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask fixed,
                                      FixedSet(scores.view(), kept, pattern, alpha));
        EXPECT_EQ(RowsOf(fixed), RowsOf(ExpectedFixed(scores, kept, pattern, alpha)));
        EXPECT_TRUE(IsSubset(fixed, kept));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TopScoresTest,
    ::testing::Combine(::testing::Values(Pattern::Unstructured(0.6), Pattern::Unstructured(0),
                                         Pattern::Unstructured(1), Pattern::Unstructured(0.29),
                                         Pattern::PerRow(0.5), Pattern::PerRow(0.97),
                                         Pattern::PerRow(1), Pattern::KeepOfGroup(2, 4),
                                         Pattern::KeepOfGroup(1, 8), Pattern::KeepOfGroup(3, 3),
                                         Pattern::KeepOfGroup(9, 72)),
                       ::testing::Values<int64_t>(0, 1, 4)));

TEST(TopScoresTest, EqualScoresKeepTheHigherIndex) {
  Matrix<float> equal(2, 4);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask whole,
                                TopScores(equal.view(), Pattern::Unstructured(0.375)));
  EXPECT_THAT(RowsOf(whole), ElementsAre("0001", "1111"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask rows, TopScores(equal.view(), Pattern::PerRow(0.5)));
  EXPECT_THAT(RowsOf(rows), ElementsAre("0011", "0011"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask pairs,
                                TopScores(equal.view(), Pattern::KeepOfGroup(1, 2)));
  EXPECT_THAT(RowsOf(pairs), ElementsAre("0101", "0101"));
}

TEST(TopScoresTest, OrdersExtremes) {
  Matrix<float> scores(1, 6);
  const float infinity = std::numeric_limits<float>::infinity();
  const float values[] = {-infinity, 1e-45F, 0, infinity, -1, 3e38F};
  std::copy_n(values, 6, scores.data());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask kept,
                                TopScores(scores.view(), Pattern::Unstructured(0.5)));
  EXPECT_THAT(RowsOf(kept), ElementsAre("010101"));
}

TEST(TopScoresTest, AScoreAtEveryDigitOfTheRadix) {
  // Neighbouring floats: only the lowest bits tell them apart.
  Matrix<float> scores(1, 4096);
  for (int64_t i = 0; i < 4096; ++i) {
    scores(0, i) = 1 + static_cast<float>((i * 1571) % 4096) * 0x1p-23F;
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask kept,
                                TopScores(scores.view(), Pattern::Unstructured(0.7)));
  EXPECT_EQ(kept, ExpectedTop(scores, Pattern::Unstructured(0.7)));
}

TEST(TopScoresTest, StridedScoresAndAnyNumberOfThreads) {
  const Matrix<float> scores = RandomScores(300, 400, 1000, 7);
  const testing::TypedMatrix strided(scores.view(), DType::kF32, 5);
  for (const Pattern& pattern : {Pattern::Unstructured(0.6), Pattern::PerRow(0.6)}) {
    absl::StatusOr<Mask> one;
    absl::StatusOr<Mask> many;
    SPARSEFW_ASSERT_OK(ParallelContext(1).Run([&] {
      one = TopScores(strided.view(), pattern);
      return one.status();
    }));
    SPARSEFW_ASSERT_OK(ParallelContext(0).Run([&] {
      many = TopScores(scores.view(), pattern);
      return many.status();
    }));
    SPARSEFW_ASSERT_OK(one);
    SPARSEFW_ASSERT_OK(many);
    EXPECT_EQ(*one, *many);
  }
}

TEST(FixedSetTest, KeepOfGroupTakesTheFractionOfTheRow) {
  Matrix<float> scores(1, 8);
  const float values[] = {1, 2, 3, 4, 50, 60, 70, 80};
  std::copy_n(values, 8, scores.data());
  const Pattern pattern = Pattern::KeepOfGroup(2, 4);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask warm, TopScores(scores.view(), pattern));
  // floor(0.9 * 4) = 3 of the row's kept weights, not floor(0.9 * 2) of each group.
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask fixed, FixedSet(scores.view(), warm, pattern, 0.9));
  EXPECT_THAT(RowsOf(fixed), ElementsAre("00010011"));
}

TEST(FixedSetTest, AWarmMaskOfTheCallerLimitsTheChoice) {
  Matrix<float> scores(2, 4);
  for (int64_t i = 0; i < 8; ++i) scores.data()[i] = static_cast<float>(i);
  const Mask warm = MaskFromRows({"1100", "1010"});
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask fixed,
                                FixedSet(scores.view(), warm, Pattern::Unstructured(0.5), 0.75));
  EXPECT_THAT(RowsOf(fixed), ElementsAre("0100", "1010"));
}

TEST(FixedSetTest, NamesWhatIsWrong) {
  Matrix<float> scores(2, 4);
  const Mask warm = MaskFromRows({"0011", "0011"});
  for (const double alpha : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(FixedSet(scores.view(), warm, Pattern::PerRow(0.5), alpha),
                StatusIs(StatusCode::kInvalidArgument, "OPTION_INVALID", "alpha", "[0, 1]"));
  }
  EXPECT_THAT(FixedSet(scores.view(), Mask(2, 5), Pattern::PerRow(0.5), 0.5),
              StatusIs(StatusCode::kInvalidArgument, "SHAPE_MISMATCH", "[2, 5]", "[2, 4]"));
  EXPECT_THAT(TopScores(scores.view(), Pattern::KeepOfGroup(2, 3)),
              StatusIs(StatusCode::kInvalidArgument, "PATTERN_INVALID", "divisible"));
  const Matrix<double> wide(2, 4);
  EXPECT_THAT(TopScores(wide.view(), Pattern::PerRow(0.5)),
              StatusIs(StatusCode::kInvalidArgument, "DTYPE_UNSUPPORTED", "scores", "F64"));
}

}  // namespace
}  // namespace sparsefw
