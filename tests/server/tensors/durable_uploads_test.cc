// Uploads and accumulations over restarts: what was acknowledged, and nothing else.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/tensors/durable_fixture.h"

namespace sparsefw::server {
namespace {

class DurableUploadsTest : public DurableFixture {
 protected:
  absl::StatusOr<int64_t> Accumulate(const std::string& upload, int64_t token,
                                     std::span<const float> values) {
    const auto bytes = std::as_bytes(values);
    return store_->Accumulate(upload, token, bytes, Crc32c(bytes));
  }
};

TEST_F(DurableUploadsTest, NothingIsSyncedUntilSomebodyIsTold) {
  const UploadInfo upload = NewUpload(WeightOf(100));
  const int syncs = faults_->syncs();
  const int writes = catalog_->writes();
  for (int64_t i = 0; i < 50; ++i) ASSERT_THAT(Write(upload.name, i, "x"), IsOk());
  EXPECT_EQ(faults_->syncs(), syncs);
  EXPECT_EQ(catalog_->writes(), writes);
  EXPECT_EQ(store_->Commit(upload.name)->committed_size, 50);
  EXPECT_EQ(faults_->syncs(), syncs + 1);
  EXPECT_EQ(catalog_->writes(), writes + 1);
  EXPECT_EQ(store_->GetUpload(upload.name)->committed_size, 50);
  EXPECT_EQ(catalog_->writes(), writes + 1) << "nothing is new";
}

// Nobody is told, and a kill in the middle of a long stream loses little.
TEST_F(DurableUploadsTest, LongStreamsAreCommittedNowAndThen) {
  options_.commit_interval_bytes = 100;
  Restart();
  const UploadInfo upload = NewUpload(WeightOf(1000));
  const int writes = catalog_->writes();
  for (int64_t i = 0; i < 25; ++i) ASSERT_THAT(Write(upload.name, 10 * i, "0123456789"), IsOk());
  EXPECT_EQ(catalog_->writes(), writes + 2);
  Kill();
  EXPECT_EQ(store_->GetUpload(upload.name)->committed_size, 200);
}

TEST_F(DurableUploadsTest, TheListKeepsItsOrderButNotItsTokens) {
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i) names.insert(names.begin(), NewUpload(WeightOf(10)).name);
  const std::string token = store_->ListUploads(1, "")->next_page_token;
  Restart();
  names.insert(names.begin(), NewUpload(WeightOf(10)).name);
  std::vector<std::string> listed;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto page, store_->ListUploads(10, ""));
  for (const UploadInfo& upload : page.uploads) listed.push_back(upload.name);
  EXPECT_EQ(listed, names);
  EXPECT_THAT(store_->ListUploads(1, token),
              StatusIs(absl::StatusCode::kInvalidArgument, "PAGE_TOKEN_INVALID"));
}

TEST_F(DurableUploadsTest, WhatWasAcknowledgedSurvivesAKill) {
  const UploadInfo upload = NewUpload(WeightOf(10), "r1");
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  EXPECT_EQ(store_->Commit(upload.name)->committed_size, 4);
  ASSERT_THAT(Write(upload.name, 4, "efg"), IsOk());
  Kill();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const UploadInfo found, store_->GetUpload(upload.name));
  EXPECT_EQ(found.committed_size, 4);
  EXPECT_EQ(found.committed_crc32c, Crc("abcd"));
  EXPECT_EQ(found.spec, upload.spec);
  EXPECT_EQ(*store_->OwnerOfUpload(found.name), kAlice);
  EXPECT_EQ(found.create_time, upload.create_time);
  EXPECT_EQ(store_->usage().used_bytes, 10);
  EXPECT_EQ(NewUpload(WeightOf(10), "r1").name, upload.name);
  EXPECT_EQ(*Write(upload.name, 2, "cdefghij"), 10) << "what was lost is sent again";
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor,
                                store_->Finish(upload.name, Crc("abcdefghij")));
  EXPECT_EQ(Read(tensor.name), "abcdefghij");
  Kill();
  EXPECT_EQ(Read(tensor.name), "abcdefghij");
  EXPECT_EQ(store_->usage().uploads, 0);
}

TEST_F(DurableUploadsTest, GetUploadAndErrorsTellWhatIsOnTheDisk) {
  const UploadInfo upload = NewUpload(WeightOf(10));
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  EXPECT_EQ(store_->GetUpload(upload.name)->committed_size, 4);
  Kill();
  EXPECT_EQ(store_->GetUpload(upload.name)->committed_size, 4);
  ASSERT_THAT(Write(upload.name, 4, "ef"), IsOk());
  const auto gap = Write(upload.name, 8, "i");
  EXPECT_EQ(ReasonMetadataOf(gap.status())["committed_size"], "6");
  Kill();
  EXPECT_EQ(store_->GetUpload(upload.name)->committed_size, 6);
}

TEST_F(DurableUploadsTest, AnEndInOrderLosesNothing) {
  const UploadInfo upload = NewUpload(WeightOf(10));
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  Restart();
  EXPECT_EQ(store_->GetUpload(upload.name)->committed_size, 4);
  EXPECT_TRUE(Incidents().empty());
}

TEST_F(DurableUploadsTest, AFullStoreKeepsTheUploadAndTellsNothingThatIsNotKept) {
  const UploadInfo upload = NewUpload(WeightOf(6));
  ASSERT_THAT(Write(upload.name, 0, "ab"), IsOk());
  SPARSEFW_ASSERT_OK(store_->Commit(upload.name));
  ASSERT_THAT(Write(upload.name, 2, "cd"), IsOk());
  catalog_->Fail(StoreFull());
  const auto refused = store_->Commit(upload.name);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "STORE_FULL"));
  EXPECT_EQ(ReasonMetadataOf(refused.status())["committed_size"], "2");
  EXPECT_EQ(store_->GetUpload(upload.name)->committed_size, 2);
  EXPECT_EQ(*Write(upload.name, 2, "cdef"), 6) << "what the client was not told of comes again";
  EXPECT_THAT(store_->Finish(upload.name, {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "STORE_FULL"));
  EXPECT_EQ(store_->usage().tensors, 0);
  EXPECT_THAT(store_->CreateUpload(WeightOf(2), "", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "STORE_FULL"));
  EXPECT_EQ(SpoolFiles(), 1U);
  catalog_->Fail(absl::OkStatus());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  Kill();
  EXPECT_EQ(Read(tensor.name), "abcdef");
}

// fdatasync says that what was written may be lost.
TEST_F(DurableUploadsTest, BytesThatCannotBeSyncedAreNotRecorded) {
  const UploadInfo upload = NewUpload(WeightOf(4));
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  faults_->FailSync(DiskBroken());
  const int writes = catalog_->writes();
  EXPECT_THAT(store_->Commit(upload.name), StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED"));
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  EXPECT_THAT(store_->Finish(upload.name, {}),
              StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED"));
  EXPECT_THAT(store_->Put(WeightOf(2), BytesOf("ab"), {}, absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED"));
  EXPECT_EQ(catalog_->writes(), writes);
  EXPECT_EQ(SpoolFiles(), 1U);
  faults_->FailSync(absl::OkStatus());
}

// The kernel tells of it once: a sync that succeeds afterwards says nothing about these bytes.
TEST_F(DurableUploadsTest, BytesWhoseSyncFailedOnceAreSentAgain) {
  const UploadInfo upload = NewUpload(WeightOf(6));
  ASSERT_THAT(Write(upload.name, 0, "ab"), IsOk());
  SPARSEFW_ASSERT_OK(store_->Commit(upload.name));
  ASSERT_THAT(Write(upload.name, 2, "cd"), IsOk());
  const int writes = catalog_->writes();
  faults_->FailOneSync(DiskBroken());
  const auto failed = store_->Commit(upload.name);
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED"));
  EXPECT_EQ(ReasonMetadataOf(failed.status())["committed_size"], "2");
  EXPECT_EQ(store_->GetUpload(upload.name)->committed_size, 2);
  EXPECT_EQ(catalog_->writes(), writes);
  EXPECT_THAT(Write(upload.name, 4, "ef"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "OFFSET_GAP"));
  EXPECT_EQ(*Write(upload.name, 2, "cdef"), 6);
  faults_->FailOneSync(DiskBroken());
  EXPECT_THAT(store_->Finish(upload.name, {}),
              StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED"));
  EXPECT_EQ(store_->GetUpload(upload.name)->committed_size, 2);
  EXPECT_EQ(*Write(upload.name, 2, "cdef"), 6);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  EXPECT_EQ(Read(tensor.name), "abcdef");
}

// Its client was told of bytes that nothing has synced, and does not send them again.
TEST_F(DurableUploadsTest, AnUploadOfAStreamWhoseSyncFailedNeverEnds) {
  const auto created = store_->CreateUpload(WeightOf(4), "", kAlice, UploadLife::kStream);
  const std::string name = std::get<UploadInfo>(*created).name;
  ASSERT_THAT(Write(name, 0, "abcd"), IsOk());
  EXPECT_EQ(store_->Commit(name)->committed_size, 4);
  faults_->FailOneSync(DiskBroken());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(store_->Finish(name, {}), StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED"));
    EXPECT_EQ(*Write(name, 0, "abcd"), 4);
  }
}

TEST_F(DurableUploadsTest, AnUploadWithoutItsFileBeginsAnewOrIsDropped) {
  const UploadInfo empty = NewUpload(WeightOf(10));
  const UploadInfo begun = NewUpload(WeightOf(10), "r1");
  ASSERT_THAT(Write(begun.name, 0, "abcd"), IsOk());
  SPARSEFW_ASSERT_OK(store_->Commit(begun.name));
  std::filesystem::remove(FileOf(empty.name));
  std::filesystem::resize_file(FileOf(begun.name), 9);
  Kill();
  EXPECT_EQ(Incidents(), std::vector<std::string>{"damaged_upload " + begun.name});
  EXPECT_THAT(store_->GetUpload(begun.name), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(store_->usage().used_bytes, 10);
  EXPECT_EQ(*Write(empty.name, 0, "abcdefghij"), 10);
  NewUpload(WeightOf(12), "r1");
}

// Its checksum goes on from the record: only reading the file shows the damage.
TEST_F(DurableUploadsTest, ADamagedUploadMakesNoUsableTensor) {
  const UploadInfo upload = NewUpload(WeightOf(4));
  ASSERT_THAT(Write(upload.name, 0, "ab"), IsOk());
  SPARSEFW_ASSERT_OK(store_->Commit(upload.name));
  Flip(FileOf(upload.name), 1);
  Kill();
  ASSERT_THAT(Write(upload.name, 2, "cd"), IsOk());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, Crc("abcd")));
  EXPECT_THAT(store_->Acquire(tensor.name),
              StatusIs(absl::StatusCode::kDataLoss, "TENSOR_CORRUPT"));
  EXPECT_EQ(store_->usage().corrupt, 1);
}

TEST_F(DurableUploadsTest, AWrongTotalBeginsAnewAlsoAfterAKill) {
  const UploadInfo upload = NewUpload(WeightOf(4));
  ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
  EXPECT_THAT(store_->Finish(upload.name, Crc("abcX")),
              StatusIs(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH"));
  Kill();
  EXPECT_EQ(store_->GetUpload(upload.name)->committed_size, 0);
  EXPECT_EQ(*Write(upload.name, 0, "abcX"), 4);
  SPARSEFW_EXPECT_OK(store_->Finish(upload.name, Crc("abcX")));
}

TEST_F(DurableUploadsTest, DeletedAndIdleUploadsStayGone) {
  const UploadInfo deleted = NewUpload(WeightOf(4));
  const UploadInfo idle = NewUpload(WeightOf(4));
  SPARSEFW_ASSERT_OK(store_->DeleteUpload(deleted.name));
  Kill();
  time_.Advance(absl::Minutes(11));
  store_->CollectGarbage();
  Kill();
  EXPECT_EQ(store_->usage().uploads, 0);
  EXPECT_EQ(SpoolFiles(), 0U);
  EXPECT_TRUE(Incidents().empty());
}

// Killed at random points, and resumed from what is committed.
TEST_F(DurableUploadsTest, ResumesAtRandomBytes) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const std::string text = RandomText(2 * (1000 + random() % 20'000), seed);
    const UploadInfo upload = NewUpload(WeightOf(static_cast<int64_t>(text.size())));
    int64_t acknowledged = 0;
    int64_t offset = 0;
    while (offset < static_cast<int64_t>(text.size())) {
      const std::string chunk = text.substr(static_cast<size_t>(offset), 1 + random() % 3000);
      ASSERT_THAT(Write(upload.name, offset, chunk), IsOk());
      offset += static_cast<int64_t>(chunk.size());
      if (random() % 4 == 0) {
        acknowledged = store_->Commit(upload.name)->committed_size;
        ASSERT_EQ(acknowledged, offset);
      }
      if (random() % 6 != 0) continue;
      Kill();
      offset = store_->GetUpload(upload.name)->committed_size;
      ASSERT_EQ(offset, acknowledged);
    }
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, Crc(text)));
    EXPECT_TRUE(Read(tensor.name) == text);
  }
}

class DurableGramsTest : public DurableUploadsTest {
 protected:
  static constexpr int64_t kDIn = 9;

  void SetUp() override {
    options_.gram_backend = *FindBackend("cpu");
    DurableUploadsTest::SetUp();
  }
  static std::vector<float> Tokens(int64_t count, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(count * kDIn));
    for (float& value : values) value = normal(random);
    return values;
  }
  static std::span<const float> Part(const std::vector<float>& values, int64_t first,
                                     int64_t count) {
    return std::span(values).subspan(static_cast<size_t>(first * kDIn),
                                     static_cast<size_t>(count * kDIn));
  }
};

TEST_F(DurableGramsTest, ResumedSumsHaveTheSameBits) {
  constexpr int64_t kTokens = 3000;  // beyond two blocks
  const std::vector<float> values = Tokens(kTokens, 3);
  for (const DType result : {DType::kF64, DType::kF32}) {
    const GramSpec spec = {kDIn, DType::kF32, result};
    const UploadInfo whole = NewGramUpload(spec);
    ASSERT_THAT(Accumulate(whole.name, 0, values), IsOk());
    const std::string expected = Read(store_->Finish(whole.name, {})->name);
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      std::mt19937_64 random(seed);
      const UploadInfo upload = NewGramUpload(spec);
      int64_t acknowledged = 0;
      for (int64_t offset = 0; offset < kTokens;) {
        const int64_t count = std::min(kTokens - offset, 1 + static_cast<int64_t>(random() % 700));
        ASSERT_THAT(Accumulate(upload.name, offset, Part(values, offset, count)), IsOk());
        offset += count;
        if (random() % 2 == 0) acknowledged = store_->Commit(upload.name)->committed_tokens;
        if (random() % 3 != 0) continue;
        Kill();
        SPARSEFW_ASSERT_OK_AND_ASSIGN(const UploadInfo found, store_->GetUpload(upload.name));
        ASSERT_EQ(found.committed_tokens, acknowledged);
        ASSERT_EQ(found.gram, spec);
        offset = found.committed_tokens;
      }
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
      EXPECT_EQ(tensor.spec.token_count, kTokens);
      EXPECT_TRUE(Read(tensor.name) == expected);
    }
  }
  Kill();
  EXPECT_EQ(SpoolFiles(), static_cast<size_t>(store_->usage().tensors)) << "no sums are left";
}

TEST_F(DurableGramsTest, OneFileOfSumsIsKept) {
  const UploadInfo upload = NewGramUpload({kDIn, DType::kF32, DType::kF64});
  EXPECT_EQ(SpoolFiles(), 1U);
  for (int64_t token = 0; token < 4; ++token) {
    ASSERT_THAT(Accumulate(upload.name, token, Tokens(1, 1)), IsOk());
    EXPECT_EQ(store_->Commit(upload.name)->committed_tokens, token + 1);
    EXPECT_EQ(SpoolFiles(), 2U);
  }
  ASSERT_THAT(Accumulate(upload.name, 4, Tokens(1, 1)), IsOk());
  catalog_->Fail(StoreFull());
  EXPECT_THAT(store_->Commit(upload.name),
              StatusIs(absl::StatusCode::kResourceExhausted, "STORE_FULL"));
  EXPECT_EQ(SpoolFiles(), 2U) << "the new sums go, the old ones are still named";
  catalog_->Fail(absl::OkStatus());
  Kill();
  EXPECT_EQ(store_->GetUpload(upload.name)->committed_tokens, 4);
  SPARSEFW_ASSERT_OK(store_->DeleteUpload(upload.name));
  EXPECT_EQ(SpoolFiles(), 0U);
  EXPECT_EQ(store_->usage().used_bytes, 0);
  EXPECT_EQ(store_->usage().disk_used_bytes, 0);
}

TEST_F(DurableGramsTest, AFullDiskLeavesTheLastGoodToken) {
  const UploadInfo upload = NewGramUpload({kDIn, DType::kF32, DType::kF64});
  ASSERT_THAT(Accumulate(upload.name, 0, Tokens(3, 1)), IsOk());
  SPARSEFW_ASSERT_OK(store_->Commit(upload.name));
  ASSERT_THAT(Accumulate(upload.name, 3, Tokens(3, 2)), IsOk());
  for (const bool in_create : {true, false}) {
    faults_->FailCreate(in_create ? DiskFull() : absl::OkStatus());
    faults_->FailWritesAfter(20, DiskFull());
    const auto full = store_->Commit(upload.name);
    EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
    EXPECT_EQ(ReasonMetadataOf(full.status())["committed_tokens"], "3");
    EXPECT_EQ(SpoolFiles(), 2U);
  }
  faults_->FailCreate(absl::OkStatus());
  faults_->FailWritesAfter(Faults::kNever, absl::OkStatus());
  EXPECT_EQ(store_->Commit(upload.name)->committed_tokens, 6);
}

TEST_F(DurableGramsTest, DamagedSumsAreRefused) {
  const UploadInfo upload = NewGramUpload({kDIn, DType::kF32, DType::kF64});
  ASSERT_THAT(Accumulate(upload.name, 0, Tokens(5, 1)), IsOk());
  SPARSEFW_ASSERT_OK(store_->Commit(upload.name));
  std::string sums;
  for (const auto& entry : std::filesystem::directory_iterator(options_.spool_dir)) {
    const std::string file = entry.path().string();
    if (file.ends_with(".part")) sums = file;
  }
  Flip(sums, 50);
  Kill();
  EXPECT_EQ(store_->GetUpload(upload.name)->committed_tokens, 5);
  EXPECT_THAT(Accumulate(upload.name, 5, Tokens(1, 1)),
              StatusIs(absl::StatusCode::kDataLoss, "TENSOR_CORRUPT", "delete the upload"));
  EXPECT_THAT(store_->Finish(upload.name, {}),
              StatusIs(absl::StatusCode::kDataLoss, "TENSOR_CORRUPT"));
  SPARSEFW_EXPECT_OK(store_->DeleteUpload(upload.name));
}

TEST_F(DurableUploadsTest, WhatATenantHasCountsAfterARestart) {
  options_.limits_of = [](std::string_view tenant) {
    TenantLimits limits;
    if (tenant == kAlice.tenant) limits.max_uploads = 1;
    limits.max_tensor_bytes = 150;
    return limits;
  };
  Restart();
  NewTensor(std::string(40, 'x'));
  const UploadInfo upload = NewUpload(WeightOf(60));
  Kill();
  EXPECT_THAT(store_->CreateUpload(WeightOf(2), "", kAlice),
              StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_UPLOADS", "there are 1"));
  SPARSEFW_ASSERT_OK(store_->DeleteUpload(upload.name));
  EXPECT_THAT(store_->CreateUpload(WeightOf(112), "", kAlice),
              StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_TENSOR_BYTES", "they take 40"));
  EXPECT_THAT(store_->CreateUpload(WeightOf(110), "", kAlice), IsOk());
}

}  // namespace
}  // namespace sparsefw::server
