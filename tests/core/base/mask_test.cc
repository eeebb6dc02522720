#include "sparsefw/mask.h"

#include <cstddef>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::StatusIs;

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(MaskTest, RowsStartOnAByteWithTheLowestColumnInTheLowestBit) {
  Mask mask(2, 10);
  mask.Set(0, 0, true);
  mask.Set(0, 9, true);
  mask.Set(1, 3, true);
  const std::vector<std::byte> actual(mask.bytes().begin(), mask.bytes().end());
  EXPECT_EQ(actual, Bytes({0x01, 0x02, 0x08, 0x00}));
  EXPECT_EQ(mask.CountKept(), 3);
  EXPECT_EQ(mask.CountKeptInRow(0), 2);
  mask.Set(0, 9, false);
  EXPECT_FALSE(mask.Get(0, 9));
  EXPECT_EQ(mask.CountKept(), 2);
}

TEST(MaskTest, BytesComeBackAsTheSameMask) {
  Mask mask(3, 17);
  for (int64_t i = 0; i < 3 * 17; i += 2) mask.Set(i / 17, i % 17, true);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask again, Mask::FromBytes(3, 17, mask.bytes()));
  EXPECT_EQ(again, mask);
}

TEST(MaskTest, CountsTheKeptOfAnyColumns) {
  constexpr int64_t kCols = 203;  // three words, and a byte that is not full
  Mask mask(2, kCols);
  for (int64_t col = 0; col < kCols; ++col) mask.Set(1, col, (col * col) % 7 < 3);
  for (int64_t first = 0; first <= kCols; ++first) {
    int64_t kept = 0;
    for (int64_t count = 0; first + count <= kCols; ++count) {
      ASSERT_EQ(mask.CountKeptIn(1, first, count), kept) << first << " " << count;
      if (first + count < kCols) kept += mask.Get(1, first + count) ? 1 : 0;
    }
  }
  EXPECT_EQ(mask.CountKeptInRow(0), 0);
  EXPECT_EQ(mask.CountKept(), mask.CountKeptInRow(1));
}

TEST(MaskTest, RefusesAWrongSizeAndSetPaddingBits) {
  EXPECT_THAT(Mask::FromBytes(2, 10, Bytes({0, 0, 0})),
              StatusIs(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH", "[2, 10]", "3 bytes"));
  EXPECT_THAT(Mask::FromBytes(2, 10, Bytes({0, 0, 0, 0x04})),
              StatusIs(absl::StatusCode::kInvalidArgument, "MASK_PADDING", "row 1"));
  SPARSEFW_EXPECT_OK(Mask::FromBytes(2, 8, Bytes({0xFF, 0xFF})));
  // Products of these are 0 in 64 bits.
  for (const int64_t cols : {int64_t{1} << 35, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(Mask::FromBytes(int64_t{1} << 32, cols, {}),
                StatusIs(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH", "0 bytes"));
  }
  EXPECT_THAT(Mask::FromBytes(0, std::numeric_limits<int64_t>::max(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH"));
}

TEST(MaskTest, AnEmptyMaskIsLegal) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask mask, Mask::FromBytes(0, 5, {}));
  EXPECT_EQ(mask.CountKept(), 0);
}

}  // namespace
}  // namespace sparsefw
