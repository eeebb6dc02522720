// Vectorised conversion against the one of dtype.h: every value there is.
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/src/linalg/widen.h"
#include "gtest/gtest.h"

namespace sparsefw::cpu {
namespace {

template <typename T>
class WidenTest : public ::testing::Test {};
using Narrow = ::testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(WidenTest, Narrow);

TYPED_TEST(WidenTest, EveryBitPattern) {
  std::vector<TypeParam> from(65536);
  for (uint32_t i = 0; i < 65536; ++i) from[i].bits = static_cast<uint16_t>(i);
  std::vector<float> out(from.size());
  Widen(from.data(), from.size(), out.data());
  for (size_t i = 0; i < from.size(); ++i) {
    const float expected = ToFloat(from[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(out[i])) << i;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected)) << i;
    }
  }
}

// Neither aligned nor a whole number of vectors, and nothing beyond the end.
TYPED_TEST(WidenTest, AnyCountAndAnyAddress) {
  std::vector<TypeParam> from(80);
  for (size_t i = 0; i < from.size(); ++i) from[i].bits = static_cast<uint16_t>(0x3C00 + 37 * i);
  for (size_t first = 0; first < 3; ++first) {
    for (size_t count = 0; count <= 70; ++count) {
      std::vector<float> out(from.size() + 3, -1.0F);
      Widen(from.data() + first, count, out.data() + first);
      for (size_t i = 0; i < out.size(); ++i) {
        const bool written = i >= first && i < first + count;
        EXPECT_EQ(out[i], written ? ToFloat(from[i]) : -1.0F) << first << " " << count << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace sparsefw::cpu
