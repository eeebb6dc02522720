// Every bit pattern of both 16-bit formats, against the definition of the formats.
#include "sparsefw/dtype.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace sparsefw {
namespace {

// The value of a binary16-like pattern by its definition: sign, exponent, fraction.
double ValueOf(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

void ExpectSame(float actual, double expected, uint16_t bits) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << "bits " << bits;
  } else {
    EXPECT_EQ(actual, expected) << "bits " << bits;
    EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << "bits " << bits;
  }
}

TEST(DTypeTest, EveryHalfConvertsExactlyAndComesBack) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const Half half{static_cast<uint16_t>(i)};
    const float value = ToFloat(half);
    ExpectSame(value, ValueOf(half.bits, 5, 10), half.bits);
    if (std::isnan(value)) continue;
    EXPECT_EQ(ToHalf(value).bits, half.bits) << "bits " << i;
  }
}

TEST(DTypeTest, EveryBFloat16ConvertsExactlyAndComesBack) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const BFloat16 value16{static_cast<uint16_t>(i)};
    const float value = ToFloat(value16);
    ExpectSame(value, ValueOf(value16.bits, 8, 7), value16.bits);
    if (std::isnan(value)) continue;
    EXPECT_EQ(ToBFloat16(value).bits, value16.bits) << "bits " << i;
  }
}

// Between two neighbours: the midpoint goes to the even one, the floats next to it to the nearer.
template <typename T, typename Narrow>
void ExpectRoundsToNearestEven(uint16_t last_finite, Narrow narrow) {
  for (uint32_t i = 0; i < last_finite; ++i) {
    const T low{static_cast<uint16_t>(i)};
    const T high{static_cast<uint16_t>(i + 1)};
    const float middle = static_cast<float>(
        (static_cast<double>(ToFloat(low)) + static_cast<double>(ToFloat(high))) / 2);
    EXPECT_EQ(narrow(middle).bits, (i & 1) == 0 ? i : i + 1) << "above bits " << i;
    EXPECT_EQ(narrow(std::nextafterf(middle, 0.0F)).bits, i);
    EXPECT_EQ(narrow(std::nextafterf(middle, INFINITY)).bits, i + 1);
    EXPECT_EQ(narrow(-middle).bits, ((i & 1) == 0 ? i : i + 1) | 0x8000U);
  }
}

TEST(DTypeTest, HalfRoundsToNearestEven) {
  ExpectRoundsToNearestEven<Half>(0x7BFF, ToHalf);
  EXPECT_EQ(ToHalf(65519.996F).bits, 0x7BFF);
  EXPECT_EQ(ToHalf(65520.0F).bits, 0x7C00) << "the midpoint to 2^16 becomes infinity";
  EXPECT_EQ(ToHalf(1e30F).bits, 0x7C00);
  EXPECT_EQ(ToHalf(-INFINITY).bits, 0xFC00);
  EXPECT_TRUE(std::isnan(ToFloat(ToHalf(NAN))));
}

TEST(DTypeTest, BFloat16RoundsToNearestEven) {
  // The smallest ones are subnormal floats, whose midpoints exist as well.
  ExpectRoundsToNearestEven<BFloat16>(0x7F7F, ToBFloat16);
  EXPECT_EQ(ToBFloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_EQ(ToBFloat16(-INFINITY).bits, 0xFF80);
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(std::bit_cast<float>(0x7F800001U)))))
      << "a NaN whose payload is cut off must stay one";
}

TEST(DTypeTest, NamesAreThoseOfSafetensors) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kBool}) {
    EXPECT_EQ(ParseDType(DTypeName(dtype)), dtype);
  }
  EXPECT_EQ(DTypeName(DType::kBF16), "BF16");
  EXPECT_EQ(ParseDType("bf16"), std::nullopt);
  EXPECT_EQ(ParseDType("I64"), std::nullopt);
}

TEST(DTypeTest, ConvertsArrays) {
  const std::vector<double> values = {0, 1.5, -2.25, 1e-300};
  std::vector<float> floats(values.size());
  ConvertToFloat(values.data(), DType::kF64, values.size(), floats.data());
  EXPECT_EQ(floats, (std::vector<float>{0, 1.5F, -2.25F, 0}));

  const std::vector<Half> halves = {ToHalf(1.5F), ToHalf(-2.25F)};
  std::vector<double> doubles(halves.size());
  ConvertToDouble(halves.data(), DType::kF16, halves.size(), doubles.data());
  EXPECT_EQ(doubles, (std::vector<double>{1.5, -2.25}));
  ConvertToFloat(nullptr, DType::kF32, 0, nullptr);
}

}  // namespace
}  // namespace sparsefw
