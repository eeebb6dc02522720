// Gram accumulations: sums, tokens, resumption.
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/gram.h"
#include "tests/server/tensors/store_fixture.h"

namespace sparsefw::server {
namespace {

constexpr int64_t kDIn = 5;

// Tokens of small whole numbers: every sum is exact in every dtype.
std::vector<float> WholeTokens(int64_t tokens, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(static_cast<size_t>(tokens * kDIn));
  for (float& value : values) value = static_cast<float>(random() % 7) - 3.0F;
  return values;
}

std::vector<double> NaiveGram(const std::vector<float>& tokens) {
  std::vector<double> gram(kDIn * kDIn);
  for (size_t token = 0; token < tokens.size() / kDIn; ++token) {
    for (size_t i = 0; i < kDIn; ++i) {
      for (size_t j = 0; j < kDIn; ++j) {
        gram[i * kDIn + j] += double{tokens[token * kDIn + i]} * double{tokens[token * kDIn + j]};
      }
    }
  }
  return gram;
}

std::string CommittedTokens(const absl::Status& status) {
  return ReasonMetadataOf(status)["committed_tokens"];
}

class GramUploadTest : public StoreFixture {
 protected:
  static constexpr GramSpec kSpec = {kDIn, DType::kF32, DType::kF64};

  absl::StatusOr<int64_t> Accumulate(const std::string& upload, int64_t offset,
                                     std::span<const float> values) {
    const auto bytes = std::as_bytes(values);
    return store_->Accumulate(upload, offset, bytes, Crc32c(bytes));
  }
  // The values of an F64 Gram.
  std::vector<double> GramOf(const std::string& tensor) {
    const std::string bytes = Read(tensor);
    std::vector<double> values(bytes.size() / sizeof(double));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

std::span<const float> Tokens(const std::vector<float>& values, size_t first, size_t count) {
  return std::span(values).subspan(first * kDIn, count * kDIn);
}

TEST_F(GramUploadTest, ChunksAreSummed) {
  const std::vector<float> values = WholeTokens(20, 1);
  const UploadInfo upload = NewGramUpload(kSpec);
  EXPECT_EQ(upload.gram, kSpec);
  EXPECT_EQ(upload.spec, (TensorSpec{TensorKind::kGram, DType::kF64, kDIn, kDIn, 0}));
  EXPECT_EQ(*Accumulate(upload.name, 0, Tokens(values, 0, 12)), 12);
  EXPECT_EQ(*Accumulate(upload.name, 12, Tokens(values, 12, 8)), 20);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const UploadInfo info, store_->GetUpload(upload.name));
  EXPECT_EQ(info.committed_tokens, 20);
  EXPECT_EQ(info.committed_size, 0);
  EXPECT_EQ(info.spec.token_count, 20);

  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  EXPECT_EQ(tensor.spec, (TensorSpec{TensorKind::kGram, DType::kF64, kDIn, kDIn, 20}));
  EXPECT_EQ(tensor.byte_size, 8 * kDIn * kDIn);
  EXPECT_EQ(tensor.crc32c, Crc(Read(tensor.name)));
  EXPECT_EQ(GramOf(tensor.name), NaiveGram(values));
  EXPECT_EQ(store_->usage().used_bytes, 8 * kDIn * kDIn) << "the sums are given back";
}

TEST_F(GramUploadTest, ResultMayBeF32) {
  const std::vector<float> values = WholeTokens(9, 2);
  const UploadInfo upload = NewGramUpload({kDIn, DType::kF32, DType::kF32});
  ASSERT_THAT(Accumulate(upload.name, 0, values), IsOk());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  EXPECT_EQ(tensor.byte_size, 4 * kDIn * kDIn);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto handle, store_->Acquire(tensor.name));
  const std::vector<double> expected = NaiveGram(values);
  for (int64_t i = 0; i < kDIn * kDIn; ++i) {
    EXPECT_EQ(double{handle->matrix().row<float>(i / kDIn)[i % kDIn]},
              expected[static_cast<size_t>(i)]);
  }
}

TEST_F(GramUploadTest, ActivationsMayBe16Bits) {
  const std::vector<float> values = WholeTokens(6, 3);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<uint16_t> bits;
    for (const float value : values) {
      bits.push_back(dtype == DType::kF16 ? ToHalf(value).bits : ToBFloat16(value).bits);
    }
    const UploadInfo upload = NewGramUpload({kDIn, dtype, DType::kF64});
    const auto bytes = std::as_bytes(std::span(bits));
    ASSERT_THAT(store_->Accumulate(upload.name, 0, bytes, Crc32c(bytes)), IsOk());
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
    EXPECT_EQ(GramOf(tensor.name), NaiveGram(values));
  }
}

// Large enough that the result is written in several blocks.
TEST_F(GramUploadTest, LargeResultsAreWhole) {
  options_.budget_bytes = 64 << 20;
  OpenStore();
  constexpr int64_t kWide = 701;
  std::vector<float> values(3 * kWide);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 11) - 5.0F;
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const UploadInfo upload = NewGramUpload({kWide, DType::kF32, dtype});
    ASSERT_THAT(Accumulate(upload.name, 0, values), IsOk());
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto handle, store_->Acquire(tensor.name));
    EXPECT_EQ(tensor.crc32c, Crc32c(handle->bytes()));
    for (int64_t i = 0; i < kWide; i += 7) {
      std::vector<double> row(kWide);
      ConvertToDouble(handle->matrix().row_bytes(i), handle->matrix().dtype(), kWide, row.data());
      for (int64_t j = 0; j < kWide; ++j) {
        double expected = 0;
        for (int64_t token = 0; token < 3; ++token) {
          expected += double{values[static_cast<size_t>(token * kWide + i)]} *
                      double{values[static_cast<size_t>(token * kWide + j)]};
        }
        ASSERT_EQ(row[static_cast<size_t>(j)], expected) << i << ", " << j;
      }
    }
  }
}

TEST_F(GramUploadTest, TokensAreNeverSummedTwice) {
  const std::vector<float> values = WholeTokens(10, 4);
  const UploadInfo upload = NewGramUpload(kSpec);
  EXPECT_EQ(*Accumulate(upload.name, 0, Tokens(values, 0, 4)), 4);
  EXPECT_EQ(*Accumulate(upload.name, 0, Tokens(values, 0, 4)), 4) << "repeated";
  EXPECT_EQ(*Accumulate(upload.name, 2, Tokens(values, 2, 5)), 7) << "over the end";
  EXPECT_EQ(*Accumulate(upload.name, 7, {}), 7) << "empty";
  EXPECT_EQ(*Accumulate(upload.name, 0, Tokens(values, 0, 10)), 10) << "everything again";
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  EXPECT_EQ(GramOf(tensor.name), NaiveGram(values));
  EXPECT_EQ(tensor.spec.token_count, 10);
}

TEST_F(GramUploadTest, TokensSentForAFinishedSumMustBeInIt) {
  const std::vector<float> values = WholeTokens(12, 4);
  const UploadInfo upload = NewGramUpload(kSpec);
  EXPECT_EQ(*Accumulate(upload.name, 0, Tokens(values, 0, 10)), 10);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  EXPECT_EQ(*Accumulate(upload.name, 0, Tokens(values, 0, 10)), 10);
  EXPECT_EQ(*Accumulate(upload.name, 9, Tokens(values, 9, 1)), 10);
  for (const size_t first : {9U, 10U}) {
    const auto beyond =
        Accumulate(upload.name, static_cast<int64_t>(first), Tokens(values, first, 2));
    EXPECT_THAT(beyond,
                StatusIs(absl::StatusCode::kOutOfRange, "OFFSET_OUT_OF_RANGE", "within 10 tokens"));
    EXPECT_EQ(CommittedTokens(beyond.status()), "10");
  }
  const auto half = BytesOf("abc");
  EXPECT_THAT(store_->Accumulate(upload.name, 0, half, Crc32c(half)),
              StatusIs(absl::StatusCode::kInvalidArgument, "PARTIAL_TOKEN"));
  EXPECT_THAT(store_->Accumulate(upload.name, 0, BytesOf(""), 7),
              StatusIs(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH"));
  EXPECT_THAT(Write(upload.name, 0, "ab"),
              StatusIs(absl::StatusCode::kInvalidArgument, "WRONG_UPLOAD_KIND", "AccumulateGram"));
  EXPECT_EQ(GramOf(tensor.name), NaiveGram({values.begin(), values.begin() + 10 * kDIn}));
}

TEST_F(GramUploadTest, ResumesAtRandomTokens) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const size_t total = 1 + random() % 60;
    const std::vector<float> values = WholeTokens(static_cast<int64_t>(total), seed);
    const UploadInfo upload = NewGramUpload(kSpec);
    size_t committed = 0;
    while (committed < total) {
      const size_t first = committed - std::min<size_t>(committed, random() % 5);
      const size_t count = 1 + random() % (total - first);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const int64_t now,
          Accumulate(upload.name, static_cast<int64_t>(first), Tokens(values, first, count)));
      ASSERT_EQ(static_cast<size_t>(now), std::max(committed, first + count));
      committed = static_cast<size_t>(now);
    }
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
    EXPECT_EQ(GramOf(tensor.name), NaiveGram(values));
  }
}

TEST_F(GramUploadTest, GapsAndBadChunksCarryTheCommittedTokens) {
  const std::vector<float> values = WholeTokens(10, 5);
  const UploadInfo upload = NewGramUpload(kSpec);
  ASSERT_THAT(Accumulate(upload.name, 0, Tokens(values, 0, 4)), IsOk());

  const auto gap = Accumulate(upload.name, 5, Tokens(values, 5, 1));
  EXPECT_THAT(gap, StatusIs(absl::StatusCode::kFailedPrecondition, "OFFSET_GAP",
                            "the 4 tokens committed", "offset 5"));
  EXPECT_EQ(CommittedTokens(gap.status()), "4");

  const auto bytes = std::as_bytes(Tokens(values, 4, 2));
  const auto partial = store_->Accumulate(upload.name, 4, bytes.first(27), Crc32c(bytes.first(27)));
  EXPECT_THAT(partial, StatusIs(absl::StatusCode::kInvalidArgument, "PARTIAL_TOKEN",
                                "whole tokens of 20 bytes (d_in=5); got 27"));
  EXPECT_EQ(CommittedTokens(partial.status()), "4");

  const auto checksum = store_->Accumulate(upload.name, 4, bytes, Crc32c(bytes) ^ 1U);
  EXPECT_THAT(checksum, StatusIs(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH"));
  EXPECT_EQ(CommittedTokens(checksum.status()), "4");

  EXPECT_THAT(Accumulate(upload.name, -1, Tokens(values, 0, 1)),
              StatusIs(absl::StatusCode::kInvalidArgument, "OFFSET_INVALID", "-1"));
  EXPECT_THAT(Accumulate(upload.name, std::numeric_limits<int64_t>::max(), Tokens(values, 0, 1)),
              StatusIs(absl::StatusCode::kOutOfRange, "OFFSET_OUT_OF_RANGE"));
  EXPECT_THAT(Accumulate(upload.name, (int64_t{1} << 32) + 4, Tokens(values, 4, 1)),
              StatusIs(absl::StatusCode::kFailedPrecondition, "OFFSET_GAP", "offset 4294967300"));

  EXPECT_EQ(*Accumulate(upload.name, 4, Tokens(values, 4, 6)), 10);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  EXPECT_EQ(GramOf(tensor.name), NaiveGram(values));
}

TEST_F(GramUploadTest, NonFiniteChunksAreRefusedWhole) {
  const std::vector<float> values = WholeTokens(10, 6);
  const UploadInfo upload = NewGramUpload(kSpec);
  ASSERT_THAT(Accumulate(upload.name, 0, Tokens(values, 0, 4)), IsOk());
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> broken = values;
    broken[6 * kDIn + 3] = bad;
    // Overlapping: the token is counted from the start of the stream all the same.
    const auto refused = Accumulate(upload.name, 2, Tokens(broken, 2, 8));
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInvalidArgument, "NON_FINITE", "[6, 3]",
                                  std::isnan(bad) ? "nan" : "-inf"));
    EXPECT_EQ(CommittedTokens(refused.status()), "4");
  }
  EXPECT_EQ(*Accumulate(upload.name, 4, Tokens(values, 4, 6)), 10);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  EXPECT_EQ(GramOf(tensor.name), NaiveGram(values));
}

TEST_F(GramUploadTest, UnalignedChunksAreSummed) {
  const std::vector<float> values = WholeTokens(3, 7);
  std::string shifted(1, '\0');
  shifted += TextOf(std::as_bytes(std::span(values)));
  const auto bytes = BytesOf(shifted).subspan(1);
  const UploadInfo upload = NewGramUpload(kSpec);
  ASSERT_THAT(store_->Accumulate(upload.name, 0, bytes, Crc32c(bytes)), IsOk());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  EXPECT_EQ(GramOf(tensor.name), NaiveGram(values));
}

TEST_F(GramUploadTest, FinishNeedsAToken) {
  const UploadInfo upload = NewGramUpload(kSpec);
  const auto empty = store_->Finish(upload.name, {});
  EXPECT_THAT(empty,
              StatusIs(absl::StatusCode::kFailedPrecondition, "INCOMPLETE", "at least one token"));
  EXPECT_EQ(CommittedTokens(empty.status()), "0");
  ASSERT_THAT(Accumulate(upload.name, 0, WholeTokens(1, 8)), IsOk());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  EXPECT_EQ(store_->Finish(upload.name, {})->name, tensor.name) << "idempotent";
  EXPECT_THAT(store_->Finish(upload.name, tensor.crc32c ^ 1U),
              StatusIs(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH"));
}

TEST_F(GramUploadTest, FinishChecksTheTotalChecksum) {
  const UploadInfo upload = NewGramUpload(kSpec);
  ASSERT_THAT(Accumulate(upload.name, 0, WholeTokens(1, 9)), IsOk());
  EXPECT_THAT(store_->Finish(upload.name, 1),
              StatusIs(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH", "got 0x00000001"));
  SPARSEFW_EXPECT_OK(store_->Finish(upload.name, {}));
}

TEST_F(GramUploadTest, SumsBeyondTheDTypeAreRefused) {
  constexpr int64_t kTokens = 5000;
  std::vector<float> values(kTokens * kDIn, 1.0F);
  for (size_t i = 2; i < values.size(); i += kDIn) values[i] = 2.8e17F;
  const UploadInfo upload = NewGramUpload({kDIn, DType::kF32, DType::kF32});
  ASSERT_THAT(Accumulate(upload.name, 0, values), IsOk());
  const auto beyond = store_->Finish(upload.name, {});
  EXPECT_THAT(beyond, StatusIs(absl::StatusCode::kInvalidArgument, "NON_FINITE", "at [2, 2]"));
  EXPECT_EQ(CommittedTokens(beyond.status()), "5000");
  EXPECT_EQ(store_->usage().tensors, 0);
}

TEST_F(GramUploadTest, DeletionGivesBackTheSums) {
  const UploadInfo upload = NewGramUpload(kSpec);
  EXPECT_EQ(store_->usage().used_bytes, 16 * kDIn * kDIn + 4 * kGramBlockTokens * kDIn);
  SPARSEFW_ASSERT_OK(store_->DeleteUpload(upload.name));
  EXPECT_EQ(store_->usage().used_bytes, 0);
  EXPECT_EQ(SpoolFiles(), 0U);
}

}  // namespace
}  // namespace sparsefw::server
