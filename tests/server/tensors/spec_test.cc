#include <cstdint>
#include <limits>
#include <set>
#include <utility>

#include "gtest/gtest.h"
#include "server/identity/random_hex.h"
#include "server/tensors/spool/spool.h"
#include "server/tensors/tensor_spec.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max();
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(TensorSpec, KindDecidesTheDType) {
  const std::set<std::pair<TensorKind, DType>> allowed = {
      {TensorKind::kWeight, DType::kF32},       {TensorKind::kWeight, DType::kF16},
      {TensorKind::kWeight, DType::kBF16},      {TensorKind::kGram, DType::kF32},
      {TensorKind::kGram, DType::kF64},         {TensorKind::kSaliency, DType::kF32},
      {TensorKind::kMask, DType::kBool},        {TensorKind::kPrunedWeight, DType::kF32},
      {TensorKind::kPrunedWeight, DType::kF16}, {TensorKind::kPrunedWeight, DType::kBF16},
  };
  for (const TensorKind kind : {TensorKind::kWeight, TensorKind::kGram, TensorKind::kSaliency,
                                TensorKind::kMask, TensorKind::kPrunedWeight}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kBool}) {
      const absl::Status status = ValidateSpec(TensorSpec{kind, dtype, 4, 4, 0});
      if (allowed.contains({kind, dtype})) {
        EXPECT_THAT(status, IsOk());
      } else {
        EXPECT_THAT(status, StatusIs(kInvalid, "SPEC_INVALID", "dtype of a ", "must be", "got"));
      }
    }
  }
  EXPECT_THAT(ValidateSpec(TensorSpec{TensorKind::kGram, DType::kF16, 4, 4, 0}),
              StatusIs(kInvalid, "SPEC_INVALID", "dtype of a GRAM must be F32 or F64; got F16"));
}

TEST(TensorSpec, NumbersAreChecked) {
  const auto weight = [](int64_t rows, int64_t cols, int64_t tokens) {
    return ValidateSpec(TensorSpec{TensorKind::kWeight, DType::kF32, rows, cols, tokens});
  };
  EXPECT_THAT(weight(0, 1, 0),
              StatusIs(kInvalid, "SPEC_INVALID", "dims[0] must be at least 1; got 0"));
  EXPECT_THAT(weight(1, -3, 0),
              StatusIs(kInvalid, "SPEC_INVALID", "dims[1] must be at least 1; got -3"));
  EXPECT_THAT(weight(1, 1, -1), StatusIs(kInvalid, "SPEC_INVALID", "token_count", "-1"));
  EXPECT_THAT(weight(1, 1, 5),
              StatusIs(kInvalid, "SPEC_INVALID", "token_count", "got 5 for a WEIGHT"));
  SPARSEFW_EXPECT_OK(ValidateSpec(TensorSpec{TensorKind::kGram, DType::kF32, 4, 4, 5}));
  EXPECT_THAT(weight(kMaxBytes, kMaxBytes, 0),
              StatusIs(kInvalid, "SPEC_INVALID", "below 2^63 bytes"));
  EXPECT_THAT(weight(1, kMaxBytes, 0), StatusIs(kInvalid, "SPEC_INVALID", "below 2^63 bytes"));
  // 2^32 * 2^32 elements are 0 in 64 bits.
  EXPECT_THAT(weight(int64_t{1} << 32, int64_t{1} << 32, 0), StatusIs(kInvalid, "SPEC_INVALID"));
  EXPECT_THAT(ValidateSpec(TensorSpec{TensorKind::kGram, DType::kF32, 4, 5, 0}),
              StatusIs(kInvalid, "SPEC_INVALID", "square; got dims [4, 5]"));
  EXPECT_THAT(ValidateSpec(TensorSpec{TensorKind::kMask, DType::kBool, kMaxBytes, 9, 0}),
              StatusIs(kInvalid, "SPEC_INVALID", "below 2^63 bytes"));
}

TEST(TensorSpec, ByteSizeIs64Bits) {
  const auto size = [](TensorKind kind, DType dtype, int64_t rows, int64_t cols) {
    return ByteSize(TensorSpec{kind, dtype, rows, cols, 0});
  };
  EXPECT_EQ(size(TensorKind::kWeight, DType::kBF16, 3, 5), 30);
  EXPECT_EQ(size(TensorKind::kGram, DType::kF64, 3, 3), 72);
  EXPECT_EQ(size(TensorKind::kWeight, DType::kF32, 65536, 65536), int64_t{1} << 34);
  EXPECT_EQ(size(TensorKind::kMask, DType::kBool, 3, 8), 3);
  EXPECT_EQ(size(TensorKind::kMask, DType::kBool, 3, 9), 6) << "rows begin on a byte";
  EXPECT_EQ(size(TensorKind::kMask, DType::kBool, 3, 1), 3);
  EXPECT_EQ(size(TensorKind::kMask, DType::kBool, 1, kMaxBytes), kMaxBytes / 8 + 1);
}

TEST(GramSpec, IsChecked) {
  const auto check = [](int64_t d_in, DType activation, DType gram) {
    return ValidateSpec(GramSpec{d_in, activation, gram});
  };
  EXPECT_THAT(check(8, DType::kBF16, DType::kF64), IsOk());
  EXPECT_THAT(check(0, DType::kF32, DType::kF32),
              StatusIs(kInvalid, "SPEC_INVALID", "d_in must be at least 1; got 0"));
  EXPECT_THAT(
      check(8, DType::kF64, DType::kF32),
      StatusIs(kInvalid, "SPEC_INVALID", "activation_dtype must be F32 or F16 or BF16; got F64"));
  EXPECT_THAT(check(8, DType::kBool, DType::kF32), StatusIs(kInvalid, "SPEC_INVALID"));
  EXPECT_THAT(check(8, DType::kF32, DType::kF16),
              StatusIs(kInvalid, "SPEC_INVALID", "gram_dtype must be F32 or F64; got F16"));
  EXPECT_THAT(check(int64_t{1} << 31, DType::kF32, DType::kF32),
              StatusIs(kInvalid, "SPEC_INVALID", "below 2^63 bytes; got d_in=2147483648"));
  EXPECT_THAT(check(kMaxBytes, DType::kF32, DType::kF32), StatusIs(kInvalid, "SPEC_INVALID"));
}

TEST(GramSpec, HostBytesAreSumsResultAndABlockOfTokens) {
  EXPECT_EQ(GramHostBytes({10, DType::kF16, DType::kF32}), 100 * (8 + 4) + 4096 * 10);
  EXPECT_EQ(GramHostBytes({10, DType::kF16, DType::kF64}), 100 * (8 + 8) + 4096 * 10);
  EXPECT_EQ(GramHostBytes({65536, DType::kF16, DType::kF32}),
            (int64_t{1} << 32) * 12 + 4096 * 65536);
  // Each fits, the sum does not.
  EXPECT_EQ(GramHostBytes({900'000'000, DType::kF16, DType::kF64}), std::nullopt);
}

TEST(RandomId, IsHexadecimalAndNew) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const std::string id, RandomHex(kIdBytes));
    EXPECT_TRUE(IsId(id)) << id;
    EXPECT_TRUE(seen.insert(id).second) << id;
  }
  EXPECT_FALSE(IsId(""));
  EXPECT_FALSE(IsId("../../../../../../../etc/passwd."));
  EXPECT_FALSE(IsId(std::string(32, 'A')));
  EXPECT_FALSE(IsId(std::string(31, 'a')));
}

}  // namespace
}  // namespace sparsefw::server
