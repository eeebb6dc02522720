#include <cstdint>
#include <limits>

#include "gtest/gtest.h"
#include "server/tensors/uploads/upload_content.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using testing::StatusIs;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kGiB = int64_t{1} << 30;

TEST(PlanAppend, ContinuesAndSkips) {
  struct Case {
    int64_t offset, count, committed, limit, skip, fresh;
  };
  const Case cases[] = {
      {0, 10, 0, 100, 0, 10},    // the first
      {10, 10, 10, 100, 0, 10},  // the next
      {5, 10, 10, 100, 5, 5},    // overlaps the end
      {0, 10, 10, 100, 10, 0},   // all of it known
      {0, 5, 10, 100, 5, 0},     // inside
      {90, 10, 90, 100, 0, 10},  // to the very end
      {10, 0, 10, 100, 0, 0},    // empty
      {100, 0, 100, 100, 0, 0},  // empty at the end
      // Beyond 4 GiB and at the edge of int64.
      {5 * kGiB, 1 << 20, 5 * kGiB, 6 * kGiB, 0, 1 << 20},
      {5 * kGiB - 7, 10, 5 * kGiB, 6 * kGiB, 7, 3},
      {0, 5 * kGiB, 4 * kGiB, 6 * kGiB, 4 * kGiB, kGiB},
      {kMax - 10, 10, kMax - 10, kMax, 0, 10},
      {0, kMax, kMax - 1, kMax, kMax - 1, 1},
  };
  for (const Case& c : cases) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const AppendRange range,
                                  PlanAppend(c.offset, c.count, c.committed, c.limit, "bytes"));
    EXPECT_EQ(range.skip, c.skip) << c.offset << " + " << c.count;
    EXPECT_EQ(range.count, c.fresh) << c.offset << " + " << c.count;
  }
}

TEST(PlanAppend, RefusesGaps) {
  EXPECT_THAT(PlanAppend(11, 10, 10, 100, "bytes"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "OFFSET_GAP",
                       "the 10 bytes committed", "offset 11"));
  EXPECT_THAT(PlanAppend(5 * kGiB, 1, kGiB, 6 * kGiB, "bytes"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "OFFSET_GAP", "offset 5368709120"));
  // 2^32 more than what is committed: the same in 32 bits.
  EXPECT_THAT(PlanAppend(4 * kGiB + 10, 1, 10, 6 * kGiB, "tokens"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "OFFSET_GAP", "10 tokens"));
}

TEST(PlanAppend, RefusesWhatEndsBeyondTheLimit) {
  const auto beyond = StatusIs(absl::StatusCode::kOutOfRange, "OFFSET_OUT_OF_RANGE", "within");
  EXPECT_THAT(PlanAppend(0, 101, 0, 100, "bytes"), beyond);
  EXPECT_THAT(PlanAppend(100, 1, 100, 100, "bytes"), beyond);
  EXPECT_THAT(PlanAppend(101, 0, 100, 100, "bytes"), beyond);
  EXPECT_THAT(PlanAppend(90, 11, 95, 100, "bytes"), beyond);
  EXPECT_THAT(PlanAppend(kMax, 1, 100, 100, "bytes"), beyond);
  EXPECT_THAT(PlanAppend(kMax, kMax, kMax, kMax, "tokens"), beyond);
  EXPECT_THAT(PlanAppend(kMax - 5, 10, kMax - 5, kMax, "tokens"), beyond);
}

TEST(PlanAppend, RefusesNegativeOffsets) {
  EXPECT_THAT(PlanAppend(-1, 1, 0, 100, "bytes"),
              StatusIs(absl::StatusCode::kInvalidArgument, "OFFSET_INVALID", "at least 0", "-1"));
  EXPECT_THAT(PlanAppend(std::numeric_limits<int64_t>::min(), kMax, 0, kMax, "bytes"),
              StatusIs(absl::StatusCode::kInvalidArgument, "OFFSET_INVALID"));
}

}  // namespace
}  // namespace sparsefw::server
