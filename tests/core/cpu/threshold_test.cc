#include "core/src/cpu/select/threshold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "core/src/cpu/linalg/kernels.h"
#include "core/src/select/bit_rows.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {
namespace {

struct Block {
  WindowScores<float> scores;
};

std::optional<Threshold<float>> Find(const std::vector<float>& scores, int64_t free, float low,
                                     float high) {
  Block block;
  for (uint32_t col = 0; col < scores.size(); ++col) {
    if (scores[col] > high) ++block.scores.above;
    if (scores[col] > low && scores[col] <= high) {
      block.scores.inside.push_back({scores[col], 0, col});
    }
  }
  std::vector<MatrixCandidate<float>> merged;
  return FindThreshold(std::vector<Block>{block}, free, low, high, merged);
}

constexpr float kMost = std::numeric_limits<float>::max();

// What an epoch follows must not depend on the window that was predicted.
TEST(ThresholdTest, TheLeastScoreSelectedWhateverTheWindow) {
  const std::vector<float> scores = {1.0F, 0.99F, 0.985F, -1.0F};
  for (const auto& [low, high] : std::vector<std::pair<float, float>>{
           {0, kMost}, {0, 1}, {0.984F, 1.01F}, {0.98F, 0.986F}, {0, 0.986F}}) {
    const auto found = Find(scores, 3, low, high);
    ASSERT_TRUE(found.has_value()) << low << ", " << high;
    EXPECT_TRUE(found->any);
    EXPECT_EQ(found->value, 0.985F) << low << ", " << high;
  }
  EXPECT_FALSE(Find(scores, 3, 0.986F, 1.0F).has_value());  // below the window
  EXPECT_FALSE(Find(scores, 1, 0.5F, 0.986F).has_value());  // above it
}

TEST(ThresholdTest, ZeroWhereFewerArePositiveThanWanted) {
  for (const float high : {0.995F, 2.0F, kMost}) {
    const auto found = Find({1.0F, 0.99F, -1.0F}, 3, 0, high);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->value, 0);
  }
  const auto none = Find({-1.0F}, 3, 0, kMost);
  ASSERT_TRUE(none.has_value());
  EXPECT_FALSE(none->any);
  EXPECT_FALSE(none->beyond);
  EXPECT_EQ(none->value, 0);
}

// The least of those above is not known then.
TEST(ThresholdTest, NothingInsideIsWanted) {
  for (const float low : {0.0F, 0.4F}) {
    const auto found = Find({1.0F, 0.99F}, 2, low, 0.5F);
    ASSERT_TRUE(found.has_value());
    EXPECT_FALSE(found->any);
    EXPECT_TRUE(found->beyond);
    EXPECT_EQ(found->value, 0.5F);
  }
  const auto at_zero = Find({1.0F, 0.99F, -1.0F}, 2, 0, 0);  // not "fewer are positive than wanted"
  ASSERT_TRUE(at_zero.has_value());
  EXPECT_TRUE(at_zero->beyond);
}

// What select_largest must give: of equal scores the later ones.
std::vector<uint64_t> LargestOf(const Matrix<float>& scores, int64_t wanted) {
  std::vector<int64_t> order;
  for (int64_t col = 0; col < scores.cols(); ++col) {
    if (scores(0, col) > 0) order.push_back(col);
  }
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::pair(scores(0, a), a) > std::pair(scores(0, b), b);
  });
  std::vector<uint64_t> bits(static_cast<size_t>(scores.cols() + 63) / 64);
  for (int64_t i = 0; i < std::min(wanted, std::ssize(order)); ++i) {
    SetBit(bits.data(), order[static_cast<size_t>(i)]);
  }
  return bits;
}

Matrix<float> RandomScores(int64_t cols, bool ties) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  Matrix<float> scores(1, cols);
  for (int64_t col = 0; col < cols; ++col) {
    const float score = normal(random);
    scores(0, col) = ties ? std::round(2 * score) : std::exp(8 * score) - 1;
  }
  return scores;
}

TEST(SelectLargestTest, ExactWhateverTheGuess) {
  for (const bool ties : {false, true}) {
    const Matrix<float> scores = RandomScores(16 * kLaneGroup, ties);
    const auto positive =
        std::count_if(scores.data(), scores.data() + scores.cols(), [](float s) { return s > 0; });
    for (const int64_t wanted : {int64_t{0}, int64_t{1}, int64_t{60}, positive, positive + 1}) {
      for (const float threshold : {0.0F, 1e-6F, 0.7F, 1e6F, kMost}) {
        ThresholdGuess<float> guess{threshold, 0};
        std::vector<uint64_t> vertex(4, ~uint64_t{0});
        for (int again = 0; again < 2; ++again) {  // with the guess that it leaves, too
          Kernels<float>().select_largest(scores.data(), 16, wanted, guess, vertex.data());
          EXPECT_EQ(vertex, LargestOf(scores, wanted)) << ties << wanted << " " << threshold;
        }
      }
    }
  }
}

TEST(SelectLargestTest, SaysTheLeastScoreSelected) {
  Matrix<float> scores(1, kLaneGroup);
  for (int64_t col = 0; col < 5; ++col) scores(0, col) = static_cast<float>(col + 1);
  for (const auto& [wanted, least] :
       std::vector<std::pair<int64_t, float>>{{0, 0}, {1, 5}, {4, 2}, {5, 1}, {6, 0}}) {
    uint64_t vertex = 0;
    ThresholdGuess<float> guess;
    EXPECT_EQ(Kernels<float>().select_largest(scores.data(), 1, wanted, guess, &vertex), least);
  }
}

TEST(SelectLargestTest, EndsWithInfiniteScores) {
  Matrix<float> scores(1, kLaneGroup);
  scores(0, 3) = scores(0, 7) = std::numeric_limits<float>::infinity();
  uint64_t vertex = 0;
  ThresholdGuess<float> guess;
  for (int again = 0; again < 2; ++again) {
    Kernels<float>().select_largest(scores.data(), 1, 1, guess, &vertex);
    EXPECT_EQ(vertex, uint64_t{1} << 7);
  }
}

// A guess of the largest value would make every later search long.
TEST(SelectLargestTest, WhereNoneIsPositiveNothingIsGuessed) {
  Matrix<float> scores(1, kLaneGroup);
  uint64_t vertex = 0;
  ThresholdGuess<float> guess{1, 1};
  EXPECT_EQ(Kernels<float>().select_largest(scores.data(), 1, 3, guess, &vertex), 0);
  EXPECT_EQ(vertex, 0);
  EXPECT_EQ(guess.threshold, 0);
}

}  // namespace
}  // namespace sparsefw::cpu
