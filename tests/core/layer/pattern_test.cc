#include "sparsefw/pattern.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"
#include "tests/testing/matchers.h"

namespace sparsefw {
namespace {

using ::absl::StatusCode;
using ::sparsefw::testing::StatusIs;

TEST(PatternTest, ARefusedSparsityIsPrintedInFull) {
  EXPECT_THAT(ValidatePattern(Pattern::PerRow(1.0000001), 2, 4),
              StatusIs(StatusCode::kInvalidArgument, "PATTERN_INVALID",
                       "sparsity must be in [0, 1]; got 1.0000001"));
}

TEST(PatternTest, UnstructuredIsOneGroupOverEverything) {
  const Groups groups = GroupsOf(Pattern::Unstructured(0.6), 10, 7);
  EXPECT_TRUE(groups.whole_matrix);
  EXPECT_EQ(groups.group_cols, 7);
  EXPECT_EQ(groups.groups_per_row, 1);
  EXPECT_EQ(groups.capacity, 28);
  EXPECT_EQ(groups.total_kept, 28);
}

TEST(PatternTest, PerRowIsOneGroupARow) {
  const Groups groups = GroupsOf(Pattern::PerRow(0.6), 10, 7);  // floor(4.2) go
  EXPECT_FALSE(groups.whole_matrix);
  EXPECT_EQ(groups.group_cols, 7);
  EXPECT_EQ(groups.groups_per_row, 1);
  EXPECT_EQ(groups.capacity, 3);
  EXPECT_EQ(groups.total_kept, 30);
}

TEST(PatternTest, KeepOfGroupIsRunsOfColumns) {
  const Groups groups = GroupsOf(Pattern::KeepOfGroup(3, 8), 5, 24);
  EXPECT_FALSE(groups.whole_matrix);
  EXPECT_EQ(groups.group_cols, 8);
  EXPECT_EQ(groups.groups_per_row, 3);
  EXPECT_EQ(groups.capacity, 3);
  EXPECT_EQ(groups.total_kept, 45);
}

// 0.29 * 100 is 28.999999999999996 in float64, and int() of the scripts says 28.
TEST(PatternTest, CountsAreThoseOfFloat64AndInt) {
  EXPECT_EQ(GroupsOf(Pattern::PerRow(0.29), 1, 100).capacity, 72);
  EXPECT_EQ(GroupsOf(Pattern::Unstructured(0.29), 10, 10).capacity, 72);
  EXPECT_EQ(GroupsOf(Pattern::PerRow(0.57), 1, 100).capacity, 44);  // 56.99999999999999
  EXPECT_EQ(GroupsOf(Pattern::PerRow(0.7), 1, 10).capacity, 3);
  EXPECT_EQ(GroupsOf(Pattern::PerRow(0), 1, 9).capacity, 9);
  EXPECT_EQ(GroupsOf(Pattern::PerRow(1), 1, 9).capacity, 0);
  EXPECT_EQ(GroupsOf(Pattern::Unstructured(1), 3, 3).total_kept, 0);
}

TEST(PatternTest, SizesBeyondFourGi) {
  constexpr int64_t kSide = int64_t{1} << 17;  // 2^34 weights
  EXPECT_EQ(GroupsOf(Pattern::Unstructured(0.5), kSide, kSide).total_kept, int64_t{1} << 33);
  EXPECT_EQ(GroupsOf(Pattern::Unstructured(0.75), kSide, kSide + 1).total_kept,
            kSide * (kSide + 1) - kSide * (kSide + 1) / 4 * 3);
  EXPECT_EQ(GroupsOf(Pattern::PerRow(0.5), kSide, kSide).total_kept, int64_t{1} << 33);
  EXPECT_EQ(GroupsOf(Pattern::KeepOfGroup(2, 4), kSide, kSide).total_kept, int64_t{1} << 33);
  SPARSEFW_EXPECT_OK(ValidatePattern(Pattern::Unstructured(0.5), kSide, kSide));
}

TEST(PatternTest, ValidatesSparsity) {
  for (const double sparsity : {0.0, 0.6, 1.0}) {
    SPARSEFW_EXPECT_OK(ValidatePattern(Pattern::Unstructured(sparsity), 2, 3));
    SPARSEFW_EXPECT_OK(ValidatePattern(Pattern::PerRow(sparsity), 2, 3));
  }
  for (const double sparsity : {-0.01, 1.01, std::numeric_limits<double>::quiet_NaN()}) {
    for (const Pattern& pattern : {Pattern::Unstructured(sparsity), Pattern::PerRow(sparsity)}) {
      EXPECT_THAT(ValidatePattern(pattern, 2, 3),
                  StatusIs(StatusCode::kInvalidArgument, "PATTERN_INVALID", "sparsity", "[0, 1]"));
    }
  }
}

TEST(PatternTest, ValidatesKeepAndGroup) {
  SPARSEFW_EXPECT_OK(ValidatePattern(Pattern::KeepOfGroup(4, 4), 2, 8));
  SPARSEFW_EXPECT_OK(ValidatePattern(Pattern::KeepOfGroup(1, 1), 2, 8));
  EXPECT_THAT(ValidatePattern(Pattern::KeepOfGroup(5, 4), 2, 8),
              StatusIs(StatusCode::kInvalidArgument, "PATTERN_INVALID",
                       "keep must be in [1, group]; got keep=5, group=4"));
  EXPECT_THAT(ValidatePattern(Pattern::KeepOfGroup(0, 4), 2, 8),
              StatusIs(StatusCode::kInvalidArgument, "PATTERN_INVALID", "keep=0"));
  EXPECT_THAT(ValidatePattern(Pattern::KeepOfGroup(0, 0), 2, 8),
              StatusIs(StatusCode::kInvalidArgument, "PATTERN_INVALID", "group=0"));
  EXPECT_THAT(
      ValidatePattern(Pattern::KeepOfGroup(2, 4), 2, 10),
      StatusIs(StatusCode::kInvalidArgument, "PATTERN_INVALID", "divisible", "cols=10", "group=4"));
}

TEST(PatternTest, ValidatesTheShape) {
  EXPECT_THAT(ValidatePattern(Pattern::PerRow(0.5), 0, 3),
              StatusIs(StatusCode::kInvalidArgument, "SHAPE_MISMATCH", "[0, 3]"));
  EXPECT_THAT(ValidatePattern(Pattern::PerRow(0.5), 3, -1),
              StatusIs(StatusCode::kInvalidArgument, "SHAPE_MISMATCH", "[3, -1]"));
  EXPECT_THAT(ValidatePattern(Pattern::PerRow(0.5), int64_t{1} << 32, int64_t{1} << 32),
              StatusIs(StatusCode::kInvalidArgument, "SHAPE_MISMATCH", "2^63"));
}

TEST(PatternTest, SaysWhatItIs) {
  EXPECT_EQ(ToString(Pattern::Unstructured(0.6)), "unstructured 60%");
  EXPECT_EQ(ToString(Pattern::PerRow(0.29)), "per-row 29%");
  EXPECT_EQ(ToString(Pattern::KeepOfGroup(2, 4)), "2:4");
}

}  // namespace
}  // namespace sparsefw
