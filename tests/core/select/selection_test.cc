// The selections that all engines share, against a full sort.
#include "core/src/select/selection.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "core/src/select/bit_rows.h"
#include "core/src/select/top_select.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::Random;
using ::testing::ElementsAre;

// Bits of the keys. With few different keys, most of them tie.
class TakeTopTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(All, TakeTopTest, ::testing::Values(3, 32, 53, 64));

TEST_P(TakeTopTest, TakesTheLargestAndOfTiesTheLast) {
  const int bits = GetParam();
  Random random(3);
  constexpr int64_t kRows = 13;
  constexpr int64_t kCols = 21;
  for (const uint64_t different : {5, 150}) {
    if (bits == 3 && different > 5) continue;
    SCOPED_TRACE(different);
    std::vector<std::tuple<uint64_t, int64_t>> keys;  // key, index
    for (int64_t i = 0; i < kRows * kCols; ++i) {
      const uint64_t key = random.Bits() % different;
      keys.emplace_back(bits == 3 ? key : key << (bits - (different == 5 ? 3 : 13)), i);
    }
    const auto visit = [&](int64_t row, auto&& sink) {
      for (int64_t col = 0; col < kCols; ++col) {
        if (col % 3 != 1) sink(col, std::get<0>(keys[static_cast<size_t>(row * kCols + col)]));
      }
    };
    std::vector<std::tuple<uint64_t, int64_t>> order;
    for (const auto& key : keys) {
      if (std::get<1>(key) % kCols % 3 != 1) order.push_back(key);
    }
    std::sort(order.rbegin(), order.rend());
    for (const int64_t count : {0, 1, 40, 99, 182, 500}) {
      Matrix<uint8_t> taken(kRows, kCols);
      const auto take = [&](int64_t row, int64_t col) { ++taken(row, col); };
      const std::optional<uint64_t> least =
          TakeTop({RowBlocks{kRows, 4}, bits, count}, visit, take);
      const bool full = count > 0 && count <= std::ssize(order);
      ASSERT_EQ(least.has_value(), full);
      if (full) {
        EXPECT_EQ(*least, std::get<0>(order[static_cast<size_t>(count - 1)]));
      }
      Matrix<uint8_t> expected(kRows, kCols);
      for (int64_t i = 0; i < std::min<int64_t>(count, std::ssize(order)); ++i) {
        ++expected.data()[std::get<1>(order[static_cast<size_t>(i)])];
      }
      EXPECT_TRUE(std::equal(taken.data(), taken.data() + taken.size(), expected.data())) << count;
    }
  }
}

TEST(SelectBestTest, OfTiesTheHigherColumns) {
  for (const int64_t count : {-1, 0, 1, 3, 5, 9}) {
    std::vector<Candidate<uint32_t>> columns = {{1, 3}, {2, 0}, {1, 7}, {2, 5}, {1, 6}};
    std::vector<uint32_t> expected = {5, 0, 7, 6, 3};
    if (count < 5) expected.resize(static_cast<size_t>(std::max<int64_t>(0, count)));
    SelectBest(count, columns);
    std::vector<uint32_t> selected;
    for (const auto& column : columns) selected.push_back(column.col);
    EXPECT_THAT(selected, ::testing::UnorderedElementsAreArray(expected)) << count;
  }
}

class SelectInGroupsTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(SelectInGroupsTest, IsASortOfEveryGroup) {
  const int64_t group = GetParam();
  const int64_t cols = group * (200 / group + 1);
  Random random(static_cast<uint64_t>(group));
  for (const int64_t capacity : {int64_t{0}, group / 2, group}) {
    std::vector<double> scores(static_cast<size_t>((cols + 63) / 64 * 64));
    BitRows fixed(1, cols);
    for (int64_t col = 0; col < cols; ++col) {
      scores[static_cast<size_t>(col)] = static_cast<double>(random.Below(7)) - 2;  // with ties
      if (capacity > 0 && col % group == 0) fixed.Set(0, col);
    }
    BitRows expected(1, cols);
    for (int64_t first = 0; first < cols; first += group) {
      std::vector<std::tuple<double, int64_t>> order;
      int64_t free = capacity;
      for (int64_t col = first; col < first + group; ++col) {
        const double score = scores[static_cast<size_t>(col)];
        if (fixed.Get(0, col)) {
          --free;
        } else if (score > 0) {
          order.emplace_back(score, col);
        }
      }
      std::sort(order.rbegin(), order.rend());
      for (int64_t i = 0; i < std::min<int64_t>(free, std::ssize(order)); ++i) {
        expected.Set(0, std::get<1>(order[static_cast<size_t>(i)]));
      }
    }
    BitRows vertex(1, cols);
    vertex.Set(0, cols - 1);  // what was there before is forgotten
    SelectInGroups({cols, group, capacity, fixed.row(0)}, scores.data(), vertex.row(0));
    for (int64_t col = 0; col < cols; ++col) {
      EXPECT_EQ(vertex.Get(0, col), expected.Get(0, col)) << "column " << col;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SelectInGroupsTest,
                         ::testing::Values(1, 2, 3, 4, 5, 8, 16, 33, 100));

// The `count` first of a full sort by (score, row-major index).
std::vector<bool> SortedLowest(const Matrix<double>& scores, int64_t width, int64_t count) {
  std::vector<std::tuple<double, int64_t>> all;
  for (int64_t row = 0; row < scores.rows(); ++row) {
    for (int64_t col = 0; col < width; ++col) all.emplace_back(scores(row, col), row * width + col);
  }
  std::sort(all.begin(), all.end());
  std::vector<bool> marks(all.size());
  for (int64_t i = 0; i < count; ++i) {
    marks[static_cast<size_t>(std::get<1>(all[static_cast<size_t>(i)]))] = true;
  }
  return marks;
}

TEST(LowestScoresTest, IsTheFrontOfAStableSort) {
  Random random(1);
  for (const int64_t levels : {1, 3, 1000000}) {  // many, some and no ties
    Matrix<double> scores(700, 130);
    for (double& score : scores.span()) {
      score = std::ldexp(static_cast<double>(random.Below(levels)), static_cast<int>(levels % 7));
    }
    for (const int64_t width : {1, 130}) {
      const int64_t size = 700 * width;
      for (const int64_t count : {int64_t{0}, int64_t{1}, size / 3, size - 1, size}) {
        Matrix<uint8_t> marks(700, 130);
        for (uint8_t& mark : marks.span()) mark = 7;  // left by an earlier block
        MarkLowestOfMatrix(scores, width, count, marks);
        const std::vector<bool> expected = SortedLowest(scores, width, count);
        for (int64_t i = 0; i < size; ++i) {
          ASSERT_EQ(marks(i / width, i % width), expected[static_cast<size_t>(i)] ? 1 : 0)
              << i << " of " << levels << " levels, " << count << " of " << size;
        }
      }
    }
  }
}

TEST(LowestScoresTest, OfARowToo) {
  const std::vector<double> scores = {2, 1, 1, 0, 1};
  std::vector<Candidate<uint64_t>> scratch;
  std::vector<uint8_t> marks(5, 7);
  MarkLowest(scores.data(), 5, 2, scratch, marks.data());
  EXPECT_THAT(marks, ElementsAre(0, 1, 0, 1, 0));
  MarkLowest(scores.data(), 5, 0, scratch, marks.data());
  EXPECT_THAT(marks, ElementsAre(0, 0, 0, 0, 0));
  MarkLowest(scores.data(), 5, 5, scratch, marks.data());
  EXPECT_THAT(marks, ElementsAre(1, 1, 1, 1, 1));
}

}  // namespace
}  // namespace sparsefw
