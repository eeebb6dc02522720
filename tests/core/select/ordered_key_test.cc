#include "core/src/select/ordered_key.h"

#include <iterator>
#include <limits>

#include "gtest/gtest.h"

namespace sparsefw {
namespace {

template <typename Real>
class OrderedKeyTest : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(OrderedKeyTest, Reals);

TYPED_TEST(OrderedKeyTest, KeepsTheOrder) {
  using Limits = std::numeric_limits<TypeParam>;
  const TypeParam values[] = {
      -Limits::infinity(),  Limits::lowest(), -1, -Limits::min(), -Limits::denorm_min(), 0,
      Limits::denorm_min(), Limits::min(),    2,  Limits::max(),  Limits::infinity()};
  EXPECT_GT(OrderedKey(values[0]), 0U);
  for (size_t i = 1; i < std::size(values); ++i) {
    EXPECT_LT(OrderedKey(values[i - 1]), OrderedKey(values[i])) << values[i];
  }
}

TYPED_TEST(OrderedKeyTest, GivesTheValueBack) {
  using Limits = std::numeric_limits<TypeParam>;
  for (const TypeParam value : {Limits::lowest(), static_cast<TypeParam>(-0.1), TypeParam{0},
                                Limits::denorm_min(), Limits::max(), Limits::infinity()}) {
    EXPECT_EQ(ValueOfKey<TypeParam>(OrderedKey(value)), value);
  }
}

TYPED_TEST(OrderedKeyTest, ZeroHasOneKey) {
  EXPECT_EQ(OrderedKey(static_cast<TypeParam>(-0.0)), OrderedKey(static_cast<TypeParam>(0.0)));
}

}  // namespace
}  // namespace sparsefw
