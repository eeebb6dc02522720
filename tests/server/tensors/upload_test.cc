// Writing an upload: offsets, checksums, resumption, its end.
#include <random>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tests/server/tensors/store_fixture.h"

namespace sparsefw::server {
namespace {

class UploadTest : public StoreFixture {};

std::string CommittedSize(const absl::Status& status) {
  return ReasonMetadataOf(status)["committed_size"];
}

TEST_F(UploadTest, ChunksBecomeATensor) {
  const UploadInfo upload = NewUpload(WeightOf(10));
  EXPECT_EQ(upload.name.substr(0, 8), "uploads/");
  EXPECT_EQ(upload.spec, WeightOf(10));
  EXPECT_FALSE(upload.gram.has_value());
  EXPECT_EQ(upload.committed_size, 0);
  EXPECT_EQ(upload.committed_crc32c, 0U);
  EXPECT_EQ(upload.create_time, time_.Now());
  EXPECT_EQ(upload.expire_time, time_.Now() + absl::Minutes(10));

  EXPECT_EQ(*Write(upload.name, 0, "abcd"), 4);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const UploadInfo half, store_->GetUpload(upload.name));
  EXPECT_EQ(half.committed_size, 4);
  EXPECT_EQ(half.committed_crc32c, Crc("abcd"));
  EXPECT_EQ(*Write(upload.name, 4, "efghij"), 10);

  time_.Advance(absl::Seconds(3));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor,
                                store_->Finish(upload.name, Crc("abcdefghij")));
  EXPECT_EQ(tensor.name.substr(0, 8), "tensors/");
  EXPECT_EQ(tensor.spec, WeightOf(10));
  EXPECT_EQ(tensor.byte_size, 10);
  EXPECT_EQ(tensor.crc32c, Crc("abcdefghij"));
  EXPECT_EQ(tensor.owner, kAlice);
  EXPECT_EQ(tensor.create_time, time_.Now());
  EXPECT_EQ(tensor.expire_time, absl::InfiniteFuture());
  EXPECT_EQ(tensor.reference_count, 0);
  EXPECT_EQ(Read(tensor.name), "abcdefghij");
}

TEST_F(UploadTest, KnownBytesAreCheckedAndSkipped) {
  const UploadInfo upload = NewUpload(WeightOf(10));
  EXPECT_EQ(*Write(upload.name, 0, "abcd"), 4);
  EXPECT_EQ(*Write(upload.name, 0, "abcd"), 4) << "repeated";
  EXPECT_EQ(*Write(upload.name, 1, "bc"), 4) << "inside";
  EXPECT_EQ(*Write(upload.name, 2, "cdef"), 6) << "over the end";
  EXPECT_EQ(*Write(upload.name, 6, ""), 6) << "empty";
  EXPECT_EQ(*Write(upload.name, 0, "abcdefghij"), 10) << "everything again";
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor,
                                store_->Finish(upload.name, Crc("abcdefghij")));
  EXPECT_EQ(Read(tensor.name), "abcdefghij");
}

TEST_F(UploadTest, OtherBytesThanThoseCommittedAreRefused) {
  const UploadInfo upload = NewUpload(WeightOf(10));
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  const auto differing = Write(upload.name, 1, "bXdef");
  EXPECT_THAT(differing, StatusIs(absl::StatusCode::kDataLoss, "BYTES_DIFFER", "byte 2 is"));
  EXPECT_EQ(CommittedSize(differing.status()), "4");
  EXPECT_EQ(*Write(upload.name, 2, "cdefghij"), 10);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  EXPECT_EQ(Read(tensor.name), "abcdefghij");
}

TEST_F(UploadTest, GapsCarryTheCommittedSize) {
  const UploadInfo upload = NewUpload(WeightOf(10));
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  const auto gap = Write(upload.name, 5, "f");
  EXPECT_THAT(gap, StatusIs(absl::StatusCode::kFailedPrecondition, "OFFSET_GAP",
                            "the 4 bytes committed", "offset 5"));
  EXPECT_EQ(CommittedSize(gap.status()), "4");
  EXPECT_EQ(*Write(upload.name, 4, "ef"), 6) << "the upload goes on";
}

TEST_F(UploadTest, BadChecksumsLeaveTheLastGoodByte) {
  const UploadInfo upload = NewUpload(WeightOf(10));
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  const auto bad = store_->Write(upload.name, 4, BytesOf("eXgh"), Crc("efgh"));
  EXPECT_THAT(bad,
              StatusIs(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH", "4 bytes at offset 4"));
  EXPECT_EQ(CommittedSize(bad.status()), "4");
  // Also where the bytes would be skipped.
  EXPECT_THAT(store_->Write(upload.name, 0, BytesOf("abcX"), Crc("abcd")),
              StatusIs(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH"));
  EXPECT_EQ(*Write(upload.name, 4, "efghij"), 10);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  EXPECT_EQ(Read(tensor.name), "abcdefghij");
}

TEST_F(UploadTest, OffsetsOutsideAreRefused) {
  const UploadInfo upload = NewUpload(WeightOf(10));
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  const auto beyond = Write(upload.name, 4, "efghijk");
  EXPECT_THAT(beyond, StatusIs(absl::StatusCode::kOutOfRange, "OFFSET_OUT_OF_RANGE",
                               "within 10 bytes", "7 of them at offset 4"));
  EXPECT_EQ(CommittedSize(beyond.status()), "4");
  EXPECT_THAT(Write(upload.name, std::numeric_limits<int64_t>::max(), "ab"),
              StatusIs(absl::StatusCode::kOutOfRange, "OFFSET_OUT_OF_RANGE"));
  EXPECT_THAT(Write(upload.name, -1, "a"),
              StatusIs(absl::StatusCode::kInvalidArgument, "OFFSET_INVALID", "-1"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const UploadInfo info, store_->GetUpload(upload.name));
  EXPECT_EQ(info.committed_size, 4);
}

TEST_F(UploadTest, UnknownNamesAreNotFound) {
  const UploadInfo upload = NewUpload(WeightOf(10));
  const auto not_found = StatusIs(absl::StatusCode::kNotFound, "UPLOAD_NOT_FOUND");
  for (const std::string& name : {std::string(), std::string("uploads/"), std::string("uploads/0"),
                                  upload.name.substr(8), "tensors/" + upload.name.substr(8),
                                  upload.name + "0", "uploads/../" + upload.name.substr(8)}) {
    EXPECT_THAT(Write(name, 0, "ab"), not_found) << name;
    EXPECT_THAT(store_->Accumulate(name, 0, BytesOf("ab"), Crc("ab")), not_found) << name;
    EXPECT_THAT(store_->GetUpload(name), not_found) << name;
    EXPECT_THAT(store_->Finish(name, {}), not_found) << name;
    EXPECT_THAT(store_->DeleteUpload(name), not_found) << name;
  }
  // A hostile name is escaped and cut.
  const absl::Status status =
      store_->GetUpload("uploads/\n\x01" + std::string(100'000, 'x')).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, "UPLOAD_NOT_FOUND", "\\n\\001xxx"));
  EXPECT_LT(status.message().size(), 300U);
}

TEST_F(UploadTest, ChunksOfAnotherKindAreRefused) {
  const UploadInfo upload = NewUpload(WeightOf(8));
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  const auto wrong = store_->Accumulate(upload.name, 0, BytesOf("efgh"), Crc("efgh"));
  EXPECT_THAT(wrong, StatusIs(absl::StatusCode::kInvalidArgument, "WRONG_UPLOAD_KIND", upload.name,
                              "must be written to by WriteTensor"));
  EXPECT_EQ(CommittedSize(wrong.status()), "4");
  const UploadInfo gram = NewGramUpload({2, DType::kF32, DType::kF32});
  EXPECT_THAT(Write(gram.name, 0, "abcdefgh"),
              StatusIs(absl::StatusCode::kInvalidArgument, "WRONG_UPLOAD_KIND", gram.name,
                       "must be written to by AccumulateGram"));
}

TEST_F(UploadTest, FinishNeedsEveryByte) {
  const UploadInfo upload = NewUpload(WeightOf(10));
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  const auto incomplete = store_->Finish(upload.name, {});
  EXPECT_THAT(incomplete, StatusIs(absl::StatusCode::kFailedPrecondition, "INCOMPLETE",
                                   "all 10 bytes", "4 are"));
  EXPECT_EQ(CommittedSize(incomplete.status()), "4");
  EXPECT_EQ(store_->usage().tensors, 0);
  EXPECT_EQ(*Write(upload.name, 4, "efghij"), 10);
  SPARSEFW_EXPECT_OK(store_->Finish(upload.name, {}));
}

TEST_F(UploadTest, FinishChecksTheWhole) {
  const UploadInfo upload = NewUpload(WeightOf(4));
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  const auto bad = store_->Finish(upload.name, Crc("abcX"));
  EXPECT_THAT(bad, StatusIs(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH", "total_crc32c"));
  EXPECT_EQ(CommittedSize(bad.status()), "0") << "the right bytes may be sent";
  EXPECT_EQ(store_->usage().tensors, 0) << "not visible";
  EXPECT_EQ(store_->GetUpload(upload.name)->committed_crc32c, 0U);
  EXPECT_EQ(*Write(upload.name, 0, "abcX"), 4);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, Crc("abcX")));
  EXPECT_EQ(Read(tensor.name), "abcX");
}

TEST_F(UploadTest, FinishIsIdempotent) {
  const UploadInfo upload = NewUpload(WeightOf(4));
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo first, store_->Finish(upload.name, {}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo again, store_->Finish(upload.name, Crc("abcd")));
  EXPECT_EQ(again.name, first.name);
  EXPECT_EQ(store_->usage().tensors, 1);
  EXPECT_THAT(store_->Finish(upload.name, Crc("abcX")),
              StatusIs(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH", first.name));
  EXPECT_THAT(store_->GetUpload(upload.name),
              StatusIs(absl::StatusCode::kNotFound, "UPLOAD_NOT_FOUND"));
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(first.name));
  EXPECT_THAT(store_->Finish(upload.name, {}),
              StatusIs(absl::StatusCode::kNotFound, "UPLOAD_NOT_FOUND"));
  EXPECT_THAT(Write(upload.name, 0, "abcd"),
              StatusIs(absl::StatusCode::kNotFound, "UPLOAD_NOT_FOUND"));
}

TEST_F(UploadTest, BytesSentForAFinishedUploadAreCompared) {
  const UploadInfo upload = NewUpload(WeightOf(8));
  ASSERT_THAT(Write(upload.name, 0, "abcdefgh"), IsOk());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  EXPECT_EQ(*Write(upload.name, 0, "abcdefgh"), 8);
  EXPECT_EQ(*Write(upload.name, 3, "de"), 8);
  EXPECT_EQ(*Write(upload.name, 8, ""), 8);
  const auto differing = Write(upload.name, 3, "dEf");
  EXPECT_THAT(differing, StatusIs(absl::StatusCode::kDataLoss, "BYTES_DIFFER", "byte 4 is"));
  EXPECT_EQ(CommittedSize(differing.status()), "8");
  EXPECT_THAT(Write(upload.name, 7, "hi"),
              StatusIs(absl::StatusCode::kOutOfRange, "OFFSET_OUT_OF_RANGE", "within 8 bytes"));
  EXPECT_THAT(Write(upload.name, -1, "a"),
              StatusIs(absl::StatusCode::kInvalidArgument, "OFFSET_INVALID"));
  EXPECT_THAT(store_->Write(upload.name, 0, BytesOf("ab"), 1),
              StatusIs(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH"));
  EXPECT_THAT(store_->Accumulate(upload.name, 0, BytesOf("abcd"), Crc("abcd")),
              StatusIs(absl::StatusCode::kInvalidArgument, "WRONG_UPLOAD_KIND", "WriteTensor"));
  EXPECT_EQ(Read(tensor.name), "abcdefgh");
}

// Each of two writers: what it was told is there is its own.
TEST_F(UploadTest, OfTwoWritersNoneIsToldOfTheOthersBytes) {
  for (int round = 0; round < 200; ++round) {
    const UploadInfo upload = NewUpload(WeightOf(64));
    const auto send = [&](char byte) -> absl::StatusOr<TensorInfo> {
      for (int64_t offset = 0; offset < 64; offset += 4) {
        const auto written = Write(upload.name, offset, std::string(4, byte));
        if (!written.ok()) return written.status();
      }
      return store_->Finish(upload.name, std::nullopt);
    };
    absl::StatusOr<TensorInfo> a;
    std::thread other([&] { a = send('a'); });
    const absl::StatusOr<TensorInfo> b = send('b');
    other.join();
    ASSERT_NE(a.ok(), b.ok());
    EXPECT_THAT(a.ok() ? b : a, StatusIs(absl::StatusCode::kDataLoss, "BYTES_DIFFER"));
    EXPECT_EQ(Read((a.ok() ? a : b)->name), std::string(64, a.ok() ? 'a' : 'b'));
    SPARSEFW_ASSERT_OK(store_->DeleteTensor((a.ok() ? a : b)->name));
  }
}

TEST_F(UploadTest, DeletedUploadsGiveBackEverything) {
  const UploadInfo upload = NewUpload(WeightOf(1000));
  EXPECT_EQ(store_->usage().used_bytes, 1000);
  EXPECT_EQ(store_->usage().uploads, 1);
  EXPECT_EQ(SpoolFiles(), 1U);
  SPARSEFW_ASSERT_OK(store_->DeleteUpload(upload.name));
  EXPECT_EQ(store_->usage().used_bytes, 0);
  EXPECT_EQ(store_->usage().uploads, 0);
  EXPECT_EQ(SpoolFiles(), 0U);
  EXPECT_THAT(store_->DeleteUpload(upload.name),
              StatusIs(absl::StatusCode::kNotFound, "UPLOAD_NOT_FOUND"));
  EXPECT_THAT(Write(upload.name, 0, "ab"),
              StatusIs(absl::StatusCode::kNotFound, "UPLOAD_NOT_FOUND"));
}

TEST_F(UploadTest, IdleUploadsAreDropped) {
  const UploadInfo idle = NewUpload(WeightOf(10), "idle");
  const UploadInfo busy = NewUpload(WeightOf(10));
  time_.Advance(absl::Minutes(6));
  ASSERT_THAT(Write(busy.name, 0, "abcd"), IsOk());
  EXPECT_EQ(store_->GetUpload(busy.name)->expire_time, time_.Now() + absl::Minutes(10));
  // Neither a refused chunk nor a look keeps an upload alive.
  EXPECT_FALSE(Write(idle.name, 5, "f").ok());
  SPARSEFW_EXPECT_OK(store_->GetUpload(idle.name));
  time_.Advance(absl::Minutes(4) - absl::Seconds(1));
  store_->CollectGarbage();
  SPARSEFW_EXPECT_OK(store_->GetUpload(idle.name));
  time_.Advance(absl::Seconds(1));
  store_->CollectGarbage();
  EXPECT_THAT(store_->GetUpload(idle.name),
              StatusIs(absl::StatusCode::kNotFound, "UPLOAD_NOT_FOUND"));
  EXPECT_EQ(*Write(busy.name, 4, "ef"), 6);
  EXPECT_EQ(store_->usage().uploads, 1);
  EXPECT_EQ(store_->usage().used_bytes, 10);
  EXPECT_EQ(SpoolFiles(), 1U);
  EXPECT_NE(NewUpload(WeightOf(10), "idle").name, idle.name) << "its request id is free again";
}

// A stream that breaks at any byte, and is resumed from what the store says.
TEST_F(UploadTest, ResumesAtRandomBytes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const std::string text = RandomText(2 * (1 + random() % 20'000), seed);
    const auto size = static_cast<int64_t>(text.size());
    const UploadInfo upload = NewUpload(WeightOf(size));
    int64_t committed = 0;
    while (committed < size) {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const UploadInfo info, store_->GetUpload(upload.name));
      ASSERT_EQ(info.committed_size, committed);
      ASSERT_EQ(info.committed_crc32c,
                Crc(std::string_view(text).substr(0, static_cast<size_t>(committed))));
      // A client that is not sure of its place goes back a little.
      int64_t offset = std::max<int64_t>(
          0, committed - static_cast<int64_t>(random() % 3 == 0 ? random() % 500 : 0));
      const int64_t cut =
          committed + 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(size - committed));
      while (offset < cut) {
        const auto count = static_cast<size_t>(
            std::min<int64_t>(cut - offset, static_cast<int64_t>(1 + random() % 3000)));
        const std::string chunk = text.substr(static_cast<size_t>(offset), count);
        SPARSEFW_ASSERT_OK_AND_ASSIGN(const int64_t now, Write(upload.name, offset, chunk));
        ASSERT_GE(now, committed);
        committed = now;
        offset += static_cast<int64_t>(count);
      }
    }
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, Crc(text)));
    EXPECT_TRUE(Read(tensor.name) == text);
    SPARSEFW_ASSERT_OK(store_->DeleteTensor(tensor.name));
  }
  EXPECT_EQ(store_->usage().used_bytes, 0);
}

TEST_F(UploadTest, ListsThoseThatHaveNotEnded) {
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) names.insert(names.begin(), NewUpload(WeightOf(4)).name);
  SPARSEFW_EXPECT_OK(Write(names[0], 0, "ab").status());
  std::vector<std::string> seen;
  std::string token;
  do {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto page, store_->ListUploads(2, token));
    for (const UploadInfo& upload : page.uploads) {
      EXPECT_EQ(upload.committed_size, upload.name == names[0] ? 2 : 0) << "made at the same time";
      seen.push_back(upload.name);
    }
    token = page.next_page_token;
  } while (!token.empty());
  EXPECT_EQ(seen, names);
  EXPECT_EQ(store_->ListUploads(10, "", "nobody")->uploads.size(), 0U);
  SPARSEFW_EXPECT_OK(store_->DeleteUpload(names[1]));
  SPARSEFW_EXPECT_OK(Write(names[2], 0, "abcd").status());
  SPARSEFW_EXPECT_OK(store_->Finish(names[2], std::nullopt).status());
  EXPECT_EQ(store_->ListUploads(10, "")->uploads.size(), 3U);
  EXPECT_THAT(store_->ListUploads(0, ""),
              StatusIs(absl::StatusCode::kInvalidArgument, "PAGE_SIZE_INVALID", "got 0"));
  EXPECT_THAT(store_->ListUploads(1, "1"),
              StatusIs(absl::StatusCode::kInvalidArgument, "PAGE_TOKEN_INVALID"));
}

}  // namespace
}  // namespace sparsefw::server
