#include "core/src/cpu/select/threshold.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/src/cpu/screen/screen_kernels.h"
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
  EXPECT_EQ(none->value, 0);
}

// The least of those above is not known then.
TEST(ThresholdTest, NothingInsideIsWanted) {
  for (const float low : {0.0F, 0.4F}) {
    const auto found = Find({1.0F, 0.99F}, 2, low, 0.5F);
    ASSERT_TRUE(found.has_value());
    EXPECT_FALSE(found->any);
    EXPECT_EQ(found->value, 0.5F);
  }
}

TEST(SelectLargestTest, NothingIsWanted) {
  Matrix<float> scores(1, kLaneGroup);
  for (int64_t i = 0; i < kLaneGroup; ++i) scores.data()[i] = 1;
  uint64_t vertex = ~uint64_t{0};
  ThresholdGuess<float> guess;
  EXPECT_EQ(KernelsOfScreening<float>().select_largest(scores.data(), 1, 0, guess, &vertex), 0);
  EXPECT_EQ(vertex, 0);
}

}  // namespace
}  // namespace sparsefw::cpu
