// Admission by bytes, and request ids.
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/gram.h"
#include "tests/server/tensors/store_fixture.h"

namespace sparsefw::server {
namespace {

class CreateUploadTest : public StoreFixture {
 protected:
  static constexpr GramSpec kGram = {16, DType::kF16, DType::kF32};
};

std::string NameOf(const absl::StatusOr<Created>& created) {
  if (!created.ok()) return testing::Describe(created.status());
  return std::visit([](const auto& info) { return info.name; }, *created);
}

TEST_F(CreateUploadTest, SpecsAreValidatedFirst) {
  EXPECT_THAT(store_->CreateUpload(TensorSpec{TensorKind::kWeight, DType::kBool, 1, 1, 0}, "", {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "SPEC_INVALID", "dtype of a WEIGHT"));
  EXPECT_THAT(
      store_->CreateUpload(TensorSpec{TensorKind::kPrunedWeight, DType::kF32, 1, 1, 0}, "", {}),
      StatusIs(absl::StatusCode::kInvalidArgument, "SPEC_INVALID", "PRUNED_WEIGHT",
               "only the server"));
  EXPECT_THAT(store_->CreateUpload(GramSpec{0, DType::kF16, DType::kF32}, "", {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "SPEC_INVALID", "d_in"));
  EXPECT_EQ(store_->usage().used_bytes, 0);
}

TEST_F(CreateUploadTest, BytesAreReservedInFull) {
  NewUpload(WeightOf(1000));
  NewUpload({TensorKind::kMask, DType::kBool, 3, 9, 0});
  EXPECT_EQ(store_->usage().used_bytes, 1006);
  NewGramUpload(kGram);
  EXPECT_EQ(store_->usage().used_bytes, 1006 + 16 * 16 * (8 + 4) + 4 * kGramBlockTokens * 16);
  EXPECT_EQ(store_->usage().budget_bytes, kBudget);
  EXPECT_EQ(store_->usage().uploads, 3);
}

TEST_F(CreateUploadTest, WhatDoesNotFitNowCanBeTriedAgain) {
  const UploadInfo first = NewUpload(WeightOf(kBudget - 100));
  const auto refused = store_->CreateUpload(WeightOf(102), "later", {});
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
                                "102 bytes must be free", "1048476 of 1048576"));
  EXPECT_EQ(ReasonMetadataOf(refused.status())["retry_delay_ms"], "1000");
  EXPECT_EQ(store_->usage().used_bytes, kBudget - 100);
  NewUpload(WeightOf(100));
  EXPECT_EQ(store_->usage().used_bytes, kBudget);
  SPARSEFW_ASSERT_OK(store_->DeleteUpload(first.name));
  SPARSEFW_EXPECT_OK(store_->CreateUpload(WeightOf(102), "later", {}));
}

TEST_F(CreateUploadTest, WhatNeverFitsIsSaidSo) {
  const auto over_budget = store_->CreateUpload(WeightOf(kBudget + 2), "", {});
  EXPECT_THAT(over_budget, StatusIs(absl::StatusCode::kResourceExhausted, "TENSOR_TOO_LARGE",
                                    "budget_bytes of 1048576", "got 1048578"));
  EXPECT_EQ(ReasonMetadataOf(over_budget.status())["max_bytes"], "1048576");
  EXPECT_EQ(ReasonMetadataOf(over_budget.status()).count("retry_delay_ms"), 0U);
  // The result of 4 * 300^2 fits, the sums and a block of tokens do not.
  EXPECT_THAT(store_->CreateUpload(GramSpec{300, DType::kF16, DType::kF32}, "", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "TENSOR_TOO_LARGE", "2308800"));

  options_.max_tensor_bytes = 1000;
  OpenStore();
  EXPECT_THAT(store_->CreateUpload(WeightOf(1002), "", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "TENSOR_TOO_LARGE",
                       "max_tensor_bytes of 1000", "got 1002"));
  EXPECT_THAT(store_->CreateUpload(GramSpec{17, DType::kF16, DType::kF32}, "", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "TENSOR_TOO_LARGE", "got 1156"));
  SPARSEFW_EXPECT_OK(store_->CreateUpload(WeightOf(1000), "", {}));
  // Far beyond 4 GiB: the arithmetic must not wrap around to something small.
  EXPECT_THAT(
      store_->CreateUpload(WeightOf(int64_t{1} << 50), "", {}),
      StatusIs(absl::StatusCode::kResourceExhausted, "TENSOR_TOO_LARGE", "1125899906842624"));
}

TEST_F(CreateUploadTest, SameRequestIdGivesTheSameUpload) {
  const UploadInfo first = NewUpload(WeightOf(10), "r1");
  ASSERT_THAT(Write(first.name, 0, "abcd"), IsOk());
  const UploadInfo again = NewUpload(WeightOf(10), "r1");
  EXPECT_EQ(again.name, first.name);
  EXPECT_EQ(again.committed_size, 4) << "where to go on";
  EXPECT_EQ(store_->usage().uploads, 1);
  EXPECT_EQ(store_->usage().used_bytes, 10);
  EXPECT_NE(NewUpload(WeightOf(10), "r2").name, first.name);
}

TEST_F(CreateUploadTest, WithoutRequestIdEveryUploadIsNew) {
  EXPECT_NE(NewUpload(WeightOf(10)).name, NewUpload(WeightOf(10)).name);
}

TEST_F(CreateUploadTest, SameRequestIdForSomethingElseIsRefused) {
  NewUpload(WeightOf(10), "r1");
  const auto reused = StatusIs(absl::StatusCode::kInvalidArgument, "REQUEST_ID_REUSED", "\"r1\"");
  EXPECT_THAT(store_->CreateUpload(WeightOf(12), "r1", kAlice), reused);
  EXPECT_THAT(store_->CreateUpload(WeightOf(10), "r1", (Owner{"default", "bob"})), reused);
  TensorSpec other = WeightOf(10);
  other.dtype = DType::kBF16;
  EXPECT_THAT(store_->CreateUpload(other, "r1", kAlice), reused);
  EXPECT_THAT(store_->CreateUpload(kGram, "r1", kAlice), reused);
  EXPECT_EQ(store_->usage().uploads, 1);
}

TEST_F(CreateUploadTest, TheFingerprintIsAPartOfTheRequest) {
  const auto create = [this](std::string_view id, UploadLife life, std::string_view fingerprint) {
    return store_->CreateUpload(WeightOf(4), id, kAlice, life, fingerprint);
  };
  const auto reused = StatusIs(absl::StatusCode::kInvalidArgument, "REQUEST_ID_REUSED");
  const auto first = create("r1", UploadLife::kStream, "one");
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(NameOf(create("r1", UploadLife::kStream, "one")), NameOf(first));
  EXPECT_THAT(create("r1", UploadLife::kStream, "other"), reused);
  EXPECT_THAT(create("r1", UploadLife::kResumable, ""), reused);
  ASSERT_THAT(Write(NameOf(first), 0, "abcd"), IsOk());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(NameOf(first), {}));
  EXPECT_EQ(NameOf(create("r1", UploadLife::kStream, "one")), tensor.name);
  EXPECT_THAT(create("r1", UploadLife::kStream, "other"), reused);

  // As one that a server recorded before there were fingerprints.
  const auto old = create("r2", UploadLife::kResumable, "");
  ASSERT_THAT(old, IsOk());
  EXPECT_EQ(NameOf(create("r2", UploadLife::kResumable, "one")), NameOf(old));
  EXPECT_THAT(create("r2", UploadLife::kStream, "one"), reused) << "a client writes it";
  ASSERT_THAT(Write(NameOf(old), 0, "abcd"), IsOk());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo old_tensor, store_->Finish(NameOf(old), {}));
  EXPECT_EQ(NameOf(create("r2", UploadLife::kStream, "one")), old_tensor.name);
}

TEST_F(CreateUploadTest, RequestIdsAreATenantsOwn) {
  const UploadInfo mine = NewUpload(WeightOf(10), "r1");
  const auto theirs = store_->CreateUpload(WeightOf(12), "r1", (Owner{"acme", "alice"}));
  ASSERT_THAT(theirs, IsOk());
  EXPECT_NE(NameOf(theirs), mine.name);
  EXPECT_EQ(*store_->OwnerOfUpload(NameOf(theirs)), (Owner{"acme", "alice"}));
  EXPECT_EQ(NewUpload(WeightOf(10), "r1").name, mine.name);
  SPARSEFW_ASSERT_OK(store_->DeleteUpload(mine.name));
  EXPECT_EQ(NameOf(store_->CreateUpload(WeightOf(12), "r1", (Owner{"acme", "alice"}))),
            NameOf(theirs))
      << "the deletion of one leaves the other";
}

// ---- What a tenant may have.

class TenantQuotaTest : public CreateUploadTest {
 protected:
  void SetUp() override {
    options_.limits_of = [this](std::string_view tenant) {
      return tenant == "acme" ? acme_ : TenantLimits();
    };
    OpenStore();
  }
  absl::StatusOr<Created> Create(int64_t bytes) {
    return store_->CreateUpload(WeightOf(bytes), "", kAcme);
  }
  const Owner kAcme = {"acme", "alice"};
  TenantLimits acme_;
};

TEST_F(TenantQuotaTest, BytesOfTensorsAndUploadsTogether) {
  acme_.max_tensor_bytes = 1000;
  const auto first = Create(600);
  ASSERT_THAT(first, IsOk());
  const auto refused = Create(402);
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_TENSOR_BYTES", "tenant acme",
                       "max-tensor-bytes of 1000", "they take 600", "402 more"));
  const ReasonMetadata metadata = ReasonMetadataOf(refused.status());
  EXPECT_EQ(metadata.at("quota"), "max-tensor-bytes");
  EXPECT_EQ(metadata.at("limit"), "1000");
  EXPECT_EQ(metadata.at("current"), "600");
  EXPECT_EQ(metadata.at("retry_delay_ms"), "1000");
  EXPECT_FALSE(ReasonMetadataOf(Create(1002).status()).contains("retry_delay_ms"))
      << "it never fits";
  EXPECT_EQ(store_->usage().used_bytes, 600) << "a refusal reserves nothing";
  NewUpload(WeightOf(5000));  // another tenant's
  ASSERT_THAT(Create(400), IsOk());
  SPARSEFW_ASSERT_OK(store_->DeleteUpload(NameOf(first)));
  EXPECT_THAT(Create(600), IsOk());
  acme_.max_tensor_bytes = 2000;
  EXPECT_THAT(Create(1000), IsOk()) << "another limit counts at once";
  acme_.max_tensor_bytes = 10;
  EXPECT_THAT(Create(2), StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_TENSOR_BYTES",
                                  "they take 2000"));
}

TEST_F(TenantQuotaTest, ResultsCountButAreNeverRefused) {
  acme_.max_tensor_bytes = 1000;
  EXPECT_THAT(store_->ReserveRoom({1002, 1}, kAcme),
              StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_TENSOR_BYTES"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(auto room, store_->ReserveRoom({1000, 2}, kAcme));
  EXPECT_THAT(Create(2), StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_TENSOR_BYTES"));
  EXPECT_THAT(store_->Put(WeightOf(600), std::vector<std::byte>(600), kAcme, {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_TENSOR_BYTES"));
  acme_.max_tensor_bytes = 0;  // since: what was reserved stays so
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo info,
                                store_->Put(WeightOf(600), std::vector<std::byte>(600), kAcme,
                                            absl::InfiniteFuture(), &room));
  acme_.max_tensor_bytes = 1000;
  room = {};
  EXPECT_THAT(Create(402), StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_TENSOR_BYTES",
                                    "they take 600"));
  EXPECT_THAT(Create(400), IsOk());
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(info.name));
  EXPECT_THAT(Create(600), IsOk());
}

TEST_F(TenantQuotaTest, OpenUploadsAreLimited) {
  acme_.max_uploads = 2;
  const auto first = Create(4);
  const auto second = Create(4);
  const auto refused = Create(4);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_UPLOADS",
                                "tenant acme", "max-uploads of 2", "there are 2"));
  EXPECT_EQ(ReasonMetadataOf(refused.status()).at("retry_delay_ms"), "1000");
  EXPECT_EQ(store_->usage().used_bytes, 8) << "a refusal reserves nothing";
  NewUpload(WeightOf(4));
  SPARSEFW_ASSERT_OK(store_->DeleteUpload(NameOf(first)));
  ASSERT_THAT(Create(4), IsOk()) << "one was deleted";
  ASSERT_THAT(Write(NameOf(second), 0, "abcd"), IsOk());
  SPARSEFW_ASSERT_OK(store_->Finish(NameOf(second), std::nullopt));
  ASSERT_THAT(Create(4), IsOk()) << "one was finished";
  time_.Advance(absl::Hours(1));
  store_->CollectGarbage();
  ASSERT_THAT(Create(4), IsOk()) << "two have expired";
  acme_.max_uploads = 0;
  EXPECT_FALSE(ReasonMetadataOf(Create(4).status()).contains("retry_delay_ms"));
}

// It waits for a database, and everybody would wait for whoever asks under the lock.
TEST_F(CreateUploadTest, WhatOthersTakeOfTheDiskIsAskedForOutsideOfTheLock) {
  int asked = 0;
  std::string tensor;
  options_.disk_used_beside = [&]() -> int64_t {
    ++asked;
    if (!tensor.empty()) {
      std::thread([&] { EXPECT_THAT(store_->GetTensor(tensor), IsOk()); }).join();
    }
    return 900;
  };
  OpenStore();
  NewUpload(WeightOf(2000));
  EXPECT_EQ(asked, 0) << "there is no budget";
  options_.disk_budget_bytes = 1000;
  OpenStore();
  tensor = NewTensor("abcd").name;
  EXPECT_THAT(store_->CreateUpload(WeightOf(100), "", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "DISK_BUDGET", "904 of 1000"));
  EXPECT_THAT(store_->ReserveRoom({100, 1}, Owner()),
              StatusIs(absl::StatusCode::kResourceExhausted, "DISK_BUDGET"));
  NewUpload(WeightOf(90));
  EXPECT_EQ(asked, 4);
}

TEST_F(CreateUploadTest, FilesStayWithinTheDiskBudget) {
  options_.disk_budget_bytes = 1000;
  OpenStore();
  const UploadInfo first = NewUpload(WeightOf(600));
  EXPECT_EQ(store_->usage().disk_used_bytes, 600);
  const auto refused = store_->CreateUpload(WeightOf(402), "", {});
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "DISK_BUDGET",
                                "402 bytes must be free in the disk budget", "600 of 1000"));
  EXPECT_EQ(ReasonMetadataOf(refused.status())["retry_delay_ms"], "1000");
  EXPECT_THAT(store_->CreateUpload(WeightOf(1002), "", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "TENSOR_TOO_LARGE",
                       "disk_budget_bytes of 1000"));
  EXPECT_THAT(store_->ReserveRoom({500, 1}, Owner()),
              StatusIs(absl::StatusCode::kResourceExhausted, "DISK_BUDGET"));
  EXPECT_EQ(store_->usage().used_bytes, 600) << "a refusal reserves nothing";
  SPARSEFW_ASSERT_OK_AND_ASSIGN(auto room, store_->ReserveRoom({400, 1}, Owner()));
  EXPECT_EQ(store_->usage().disk_used_bytes, 1000);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo info, store_->Put(WeightOf(2), BytesOf("ab"), {},
                                                                   absl::InfiniteFuture(), &room));
  room = {};
  EXPECT_EQ(store_->usage().disk_used_bytes, 602);
  SPARSEFW_ASSERT_OK(store_->DeleteUpload(first.name));
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(info.name));
  EXPECT_EQ(store_->usage().disk_used_bytes, 0);
}

TEST_F(CreateUploadTest, SmallTensorsAreCountedToo) {
  options_.max_tensors = 2;
  OpenStore();
  const TensorInfo tensor = NewTensor("ab", "kept");
  NewUpload(WeightOf(2));
  const auto refused = store_->CreateUpload(WeightOf(2), "", {});
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "TOO_MANY_TENSORS",
                                "max-tensors of 2; there are 2"));
  EXPECT_EQ(ReasonMetadataOf(refused.status())["retry_delay_ms"], "1000");
  EXPECT_THAT(store_->CreateUpload(kGram, "", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "TOO_MANY_TENSORS"));
  EXPECT_THAT(store_->Put(WeightOf(2), BytesOf("ab"), {}, absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kResourceExhausted, "TOO_MANY_TENSORS"));
  EXPECT_EQ(store_->usage().used_bytes, 4);
  SPARSEFW_EXPECT_OK(store_->CreateUpload(WeightOf(2), "kept", kAlice));
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(tensor.name));
  SPARSEFW_EXPECT_OK(store_->CreateUpload(WeightOf(2), "", {}));
}

TEST_F(CreateUploadTest, FinishedRequestIdGivesTheTensor) {
  const TensorInfo tensor = NewTensor("abcd", "r1");
  for (int i = 0; i < 2; ++i) {
    const auto again = store_->CreateUpload(WeightOf(4), "r1", kAlice);
    ASSERT_THAT(again, IsOk());
    ASSERT_TRUE(std::holds_alternative<TensorInfo>(*again));
    EXPECT_EQ(NameOf(again), tensor.name);
    // Kept as long as the tensor, however long that is.
    time_.Advance(absl::Hours(1000));
    store_->CollectGarbage();
  }
  EXPECT_THAT(store_->CreateUpload(WeightOf(6), "r1", kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument, "REQUEST_ID_REUSED"));
  EXPECT_EQ(store_->usage().used_bytes, 4);

  SPARSEFW_ASSERT_OK(store_->DeleteTensor(tensor.name));
  const auto fresh = store_->CreateUpload(WeightOf(4), "r1", kAlice);
  ASSERT_THAT(fresh, IsOk());
  EXPECT_TRUE(std::holds_alternative<UploadInfo>(*fresh)) << "forgotten with the tensor";
}

TEST_F(CreateUploadTest, DeletedUploadFreesItsRequestId) {
  const UploadInfo first = NewUpload(WeightOf(10), "r1");
  SPARSEFW_ASSERT_OK(store_->DeleteUpload(first.name));
  EXPECT_NE(NewUpload(WeightOf(12), "r1").name, first.name);
}

TEST_F(CreateUploadTest, GramRequestIdsWorkAlike) {
  const auto first = store_->CreateUpload(kGram, "g", kAlice);
  const auto again = store_->CreateUpload(kGram, "g", kAlice);
  EXPECT_EQ(NameOf(first), NameOf(again));
  GramSpec other = kGram;
  other.gram_dtype = DType::kF64;
  EXPECT_THAT(store_->CreateUpload(other, "g", kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument, "REQUEST_ID_REUSED"));
}

TEST_F(CreateUploadTest, OptionsAreChecked) {
  store_.reset();
  const auto with = [this](auto change) {
    TensorStoreOptions options = options_;
    change(options);
    return TensorStore::Open(options).status();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(with([](auto& o) { o.gram_backend = nullptr; }),
              StatusIs(kInvalid, "OPTION_INVALID", "gram_backend"));
  EXPECT_THAT(with([](auto& o) { o.budget_bytes = 0; }),
              StatusIs(kInvalid, "OPTION_INVALID", "budget_bytes", "got 0"));
  EXPECT_THAT(with([](auto& o) { o.max_tensor_bytes = -1; }),
              StatusIs(kInvalid, "OPTION_INVALID", "max_tensor_bytes", "-1"));
  EXPECT_THAT(with([](auto& o) { o.max_tensors = 0; }),
              StatusIs(kInvalid, "OPTION_INVALID", "max_tensors"));
  EXPECT_THAT(with([](auto& o) { o.upload_idle_ttl = absl::ZeroDuration(); }),
              StatusIs(kInvalid, "OPTION_INVALID", "upload_idle_ttl"));
  EXPECT_THAT(with([](auto& o) { o.spool_dir = ""; }), StatusIs(kInvalid, "OPTION_INVALID"));
}

TEST_F(CreateUploadTest, SecondStoreOnTheSameFolderIsRefused) {
  EXPECT_THAT(TensorStore::Open(options_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "SPOOL_IN_USE", options_.spool_dir));
}

TEST_F(CreateUploadTest, NextStoreStartsEmpty) {
  NewTensor("abcd");
  NewUpload(WeightOf(10));
  store_.reset();
  EXPECT_EQ(SpoolFiles(), 0U) << "an end in order leaves nothing";
  testing::WriteFile(options_.spool_dir + "/0123456789abcdef0123456789abcdef.tensor", "killed");
  testing::WriteFile(options_.spool_dir + "/thesis.tex", "years of work");
  OpenStore();
  EXPECT_TRUE(std::filesystem::remove(options_.spool_dir + "/thesis.tex")) << "not ours";
  EXPECT_EQ(SpoolFiles(), 0U);
  EXPECT_EQ(store_->usage().tensors, 0);
  EXPECT_EQ(store_->usage().used_bytes, 0);
}

}  // namespace
}  // namespace sparsefw::server
