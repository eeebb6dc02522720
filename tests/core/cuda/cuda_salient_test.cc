// Selection by saliency, by the kernels for rows that do not fit into shared memory and for groups
// of a thread: what the host selects by the same scores.
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/src/cuda/select/select_scores.h"
#include "gtest/gtest.h"
#include "sparsefw/saliency.h"
#include "tests/cuda_on_host/test_buffer.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cuda {
namespace {

using ::cuda_on_host::TestBuffer;

struct Shape {
  int64_t rows;
  int64_t cols;
  Pattern pattern;
};

// Whole words of columns and not; a row of one group for a thread, and larger; none and all kept.
const Shape kShapes[] = {
    {9, 48, Pattern::PerRow(0.4)},        {5, 150, Pattern::PerRow(0.4)},
    {7, 44, Pattern::KeepOfGroup(3, 11)}, {4, 210, Pattern::KeepOfGroup(20, 70)},
    {6, 33, Pattern::Unstructured(0.7)},  {3, 40, Pattern::PerRow(0)},
    {3, 70, Pattern::PerRow(1)},          {4, 37, Pattern::Unstructured(0)},
    {4, 37, Pattern::Unstructured(1)},
};

class SalientTest : public ::testing::TestWithParam<Shape> {
 protected:
  // What is selected of `among` (all where it is empty), with so many bytes of a row shared.
  static Mask Select(const testing::RandomLayer& layer, const std::vector<double>& factor,
                     const std::vector<BitWord>& among, const Groups& groups, int64_t shared) {
    const int64_t rows = layer.weights.rows();
    const int64_t cols = layer.weights.cols();
    const int64_t words = StrideOf(cols) / 32;
    TestBuffer<float> weights(std::vector<float>(
        layer.weights.row(0), layer.weights.row(0) + rows * layer.weights.view().stride()));
    TestBuffer<double> factors(factor);
    TestBuffer<unsigned char> scratch(
        std::vector<unsigned char>(static_cast<size_t>(SelectionBytes(rows, cols))));
    const std::vector<BitWord> none(static_cast<size_t>(rows * words));
    TestBuffer<BitWord> bits(none);
    TestBuffer<BitWord> candidates(among.empty() ? none : among);
    cuda_on_host::MustSucceed(LaunchSelectSalient(
        {rows, cols, scratch.data(), shared},
        {.weights = {weights.data(), DType::kF32, rows, cols}, .factor = factors.data()},
        among.empty() ? nullptr : candidates.data(), groups, bits.data(), nullptr));
    const std::vector<BitWord> found = bits.Get();
    Mask mask(rows, cols);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < words * 32; ++col) {
        const BitWord word = found[static_cast<size_t>(row * words + col / 32)];
        if (((word >> (col % 32)) & 1U) == 0) continue;
        if (col < cols) mask.Set(row, col, true);
        EXPECT_LT(col, cols) << "padding of row " << row;
      }
    }
    return mask;
  }

  static std::vector<BitWord> WordsOf(const Mask& mask) {
    const int64_t words = StrideOf(mask.cols()) / 32;
    std::vector<BitWord> found(static_cast<size_t>(mask.rows() * words));
    for (int64_t row = 0; row < mask.rows(); ++row) {
      for (int64_t col = 0; col < mask.cols(); ++col) {
        const auto at = static_cast<size_t>(row * words + col / 32);
        if (mask.Get(row, col)) found[at] |= BitWord{1} << (col % 32);
      }
    }
    return found;
  }
};

TEST_P(SalientTest, SelectsWhatTheHostDoes) {
  const auto& [rows, cols, pattern] = GetParam();
  testing::RandomLayer layer = testing::MakeRandomLayer({.rows = rows, .cols = cols, .seed = 3});
  for (int64_t col = 0; col < cols; col += 3) layer.weights(1, col) = 0.5F;  // equal scores
  std::vector<double> diagonal(static_cast<size_t>(cols), 2.0);
  diagonal[5] = diagonal[6] = 0;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const SaliencySource source,
                                MakeSaliencySource(layer.weights.view(), diagonal, {}));
  const Matrix<float> scores = ScoresOf(source);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask warm, TopScores(scores.view(), pattern));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask fixed, FixedSet(scores.view(), warm, pattern, 0.6));
  for (const int64_t shared : {0, 96 << 10}) {
    SCOPED_TRACE(shared);
    const std::vector<double>& factor = source.terms()->factor;
    EXPECT_EQ(Select(layer, factor, {}, GroupsOf(pattern, rows, cols), shared), warm);
    EXPECT_EQ(Select(layer, factor, WordsOf(warm), FixedGroups(pattern, rows, cols, 0.6), shared),
              fixed);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, SalientTest, ::testing::ValuesIn(kShapes));

// Infinite scores are the largest, and NaN is never selected.
TEST(SalientSpecialTest, ScoresThatAreNoNumbers) {
  const std::vector<float> values = {1, 0, 3, 2};  // times the factors: inf, NaN, 3, 0
  TestBuffer<float> weights(values);
  TestBuffer<double> factors(std::vector<double>{HUGE_VAL, HUGE_VAL, 1, 0});
  for (const bool whole : {false, true}) {
    TestBuffer<unsigned char> scratch(
        std::vector<unsigned char>(static_cast<size_t>(SelectionBytes(1, 4))));
    TestBuffer<BitWord> bits(std::vector<BitWord>(2));
    cuda_on_host::MustSucceed(LaunchSelectSalient(
        {1, 4, scratch.data(), 96 << 10},
        {.weights = {weights.data(), DType::kF32, 1, 4}, .factor = factors.data()}, nullptr,
        {whole, 4, 1, 2, 2}, bits.data(), nullptr));
    EXPECT_EQ(bits.Get().front(), 0b0101U) << whole;
  }
}

}  // namespace
}  // namespace sparsefw::cuda
