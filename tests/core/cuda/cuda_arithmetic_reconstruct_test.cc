// The arithmetic of the CUDA engine's reconstruction, on the host: rounding to
// dtypes, the scalars of a row's conjugate gradients.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/src/cuda/reconstruct/gradient_row.h"
#include "core/src/reconstruct/reconstruction_rules.h"
#include "core/src/reconstruct/rounded_value.h"
#include "gtest/gtest.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cuda {
namespace {

using ::sparsefw::testing::Random;

void ExpectSameBits(float value) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto wide = static_cast<double>(value);
    const float expected = dtype == DType::kF16    ? ToFloat(ToHalf(value))
                           : dtype == DType::kBF16 ? ToFloat(ToBFloat16(value))
                                                   : value;
    EXPECT_EQ(std::bit_cast<uint32_t>(RoundedTo(dtype, wide)), std::bit_cast<uint32_t>(expected))
        << DTypeName(dtype) << " " << value;
  }
}

TEST(RoundedValueTest, IsWhatTheConversionsOfDTypesGiveBitForBit) {
  // Every value of F16 and BF16, and floats just beside their midpoints.
  for (uint32_t bits = 0; bits < (1U << 16); ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    for (const float value : {ToFloat(Half{half}), ToFloat(BFloat16{half})}) {
      if (std::isnan(value)) continue;
      const auto pattern = std::bit_cast<uint32_t>(value);
      for (const uint32_t offset : {0U, 0xFFFU, 0x1000U, 0x1001U, 0x7FFFU, 0x8000U, 0x8001U}) {
        const auto beside = std::bit_cast<float>(pattern + offset);
        if (!std::isnan(beside)) ExpectSameBits(beside);
      }
    }
  }
  Random random(1);
  for (int i = 0; i < 200000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random.Bits()));
    if (!std::isnan(value)) ExpectSameBits(value);
    // Subnormals of F16, ties among them.
    ExpectSameBits(std::ldexp(static_cast<float>(random.Below(4096)), -26));
  }
  for (const float value :
       {65504.0F, 65519.0F, 65520.0F, 65536.0F, 0.0F, -0.0F, std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::max()}) {
    ExpectSameBits(value);
    ExpectSameBits(-value);
  }
}

TEST(RoundedValueTest, OutOfRangeIsInfinite) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_EQ(RoundedTo(dtype, 1e300), std::numeric_limits<float>::infinity());
    EXPECT_EQ(RoundedTo(dtype, -1e300), -std::numeric_limits<float>::infinity());
  }
}

TEST(RoundedValueTest, NaNStaysNaN) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_TRUE(std::isnan(RoundedTo(dtype, std::nan(""))));
  }
}

TEST(GradientRowTest, IsDoneWhereThereIsNothingToGain) {
  EXPECT_EQ(BeginRow(0, 5).done, 1);
  EXPECT_EQ(BeginRow(std::nan(""), 5).done, 1);
  const GradientRow row = BeginRow(2, 5);
  EXPECT_EQ(row.done, 0);
  EXPECT_TRUE(CanStep(row, 1));
  EXPECT_FALSE(CanStep(row, 0)) << "in the null space";
  EXPECT_FALSE(CanStep(row, std::nan("")));
  EXPECT_FALSE(CanStep(BeginRow(0, 5), 1));
}

TEST(GradientRowTest, KnowsTheLossAndEndsWithTheWindow) {
  GradientRow row = BeginRow(2, 10);
  const double floor = 10 * kReconstructFloor;
  EXPECT_EQ(FinishGradientStep(row, 0.5, 1, 0), 0.5);  // beta
  EXPECT_NEAR(row.loss, 9 - floor, 1e-12);
  EXPECT_EQ(row.rho, 1);
  EXPECT_EQ(row.done, 0);
  // Gains of 1e-5 from here on: the first one leaves the window with step 4.
  for (int iteration = 1; iteration < 4; ++iteration) {
    FinishGradientStep(row, 1e-5, 1, iteration);
    EXPECT_EQ(row.done, 0) << iteration;
  }
  FinishGradientStep(row, 1e-5, 1, 4);
  EXPECT_EQ(row.done, 1);
  EXPECT_NEAR(row.loss, 9 - floor - 4e-5, 1e-12);
}

TEST(GradientRowTest, EndsWhereTheResidualOrTheLossIsGone) {
  GradientRow row = BeginRow(2, 10);
  FinishGradientStep(row, 1, 0, 0);
  EXPECT_EQ(row.done, 1);
  row = BeginRow(2, 10);
  FinishGradientStep(row, 5, 1, 0);  // all of the loss
  EXPECT_EQ(row.done, 1);
  row = BeginRow(2, 10);
  FinishGradientStep(row, 5 * (1 - kReconstructFloor / 2), 1, 0);  // nearly all
  EXPECT_EQ(row.done, 1);
}

}  // namespace
}  // namespace sparsefw::cuda
