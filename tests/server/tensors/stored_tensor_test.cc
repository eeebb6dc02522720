// Complete tensors: reading, holding, deleting, listing, expiring.
#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/tensors/store_fixture.h"

namespace sparsefw::server {
namespace {

class StoredTensorTest : public StoreFixture {
 protected:
  TensorInfo Put(std::string_view text, absl::Time expire_time = absl::InfiniteFuture()) {
    auto info = store_->Put(WeightOf(static_cast<int64_t>(text.size())), BytesOf(text),
                            Owner{"default", "server"}, expire_time);
    EXPECT_THAT(info, IsOk());
    return info.ok() ? *info : TensorInfo();
  }
};

TEST_F(StoredTensorTest, PutIsVisibleAtOnce) {
  const TensorInfo info = Put("abcd", time_.Now() + absl::Hours(1));
  EXPECT_EQ(info.byte_size, 4);
  EXPECT_EQ(info.crc32c, Crc("abcd"));
  EXPECT_EQ(info.owner, (Owner{"default", "server"}));
  EXPECT_EQ(info.create_time, time_.Now());
  EXPECT_EQ(info.expire_time, time_.Now() + absl::Hours(1));
  EXPECT_EQ(store_->GetTensor(info.name)->name, info.name);
  EXPECT_EQ(Read(info.name), "abcd");
  EXPECT_EQ(store_->usage().used_bytes, 4);
}

TEST_F(StoredTensorTest, PutChecksWhatItIsGiven) {
  const TensorSpec spec = WeightOf(4);
  EXPECT_THAT(store_->Put(spec, BytesOf("abc"), {}, absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kInvalidArgument, "SPEC_INVALID",
                       "dims [1, 2] must be 4 bytes; got 3"));
  EXPECT_THAT(store_->Put({TensorKind::kMask, DType::kF32, 1, 1, 0}, BytesOf("abcd"), {},
                          absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kInvalidArgument, "SPEC_INVALID", "dtype of a MASK"));
  NewUpload(WeightOf(kBudget - 2));
  EXPECT_THAT(store_->Put(spec, BytesOf("abcd"), {}, absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kResourceExhausted, "HOST_MEMORY"));
  SPARSEFW_EXPECT_OK(store_->Put({TensorKind::kPrunedWeight, DType::kBF16, 1, 1, 0}, BytesOf("ab"),
                                 {}, absl::InfiniteFuture()));
}

TEST_F(StoredTensorTest, UploadNamesDoNotReachWhatTheServerMade) {
  const TensorInfo info = Put("abcd");
  EXPECT_THAT(store_->Finish("uploads/" + info.name.substr(8), {}),
              StatusIs(absl::StatusCode::kNotFound, "UPLOAD_NOT_FOUND"));
}

TEST_F(StoredTensorTest, ValuesAreCheckedOnceWhoeverAsks) {
  const std::string name = Put("abcd").name;
  std::atomic<int> checks{0};
  const auto good = [&checks] {
    ++checks;
    return absl::OkStatus();
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto handle = store_->Acquire(name);
      ASSERT_THAT(handle, IsOk());
      SPARSEFW_EXPECT_OK((*handle)->CheckValues(good));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(checks, 1);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto other, store_->Acquire(Put("efgh").name));
  SPARSEFW_EXPECT_OK(other->CheckValues(good));
  EXPECT_EQ(checks, 2);
}

TEST_F(StoredTensorTest, BadValuesStayBad) {
  const std::string name = Put("abcd").name;
  for (int i = 0; i < 2; ++i) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto handle, store_->Acquire(name));
    EXPECT_THAT(handle->CheckValues([i] {
      return i == 0 ? absl::InvalidArgumentError("weight[0, 1]=nan") : absl::OkStatus();
    }),
                StatusIs(absl::StatusCode::kInvalidArgument, "", "weight[0, 1]=nan"));
  }
}

TEST_F(StoredTensorTest, HandlesShowMatrices) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const TensorInfo info,
      store_->Put({TensorKind::kSaliency, DType::kF32, 2, 3, 0}, std::as_bytes(std::span(values)),
                  {}, absl::InfiniteFuture()));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto handle, store_->Acquire(info.name));
  const ConstMatrixView view = handle->matrix();
  EXPECT_EQ(view.dtype(), DType::kF32);
  EXPECT_EQ(view.rows(), 2);
  EXPECT_EQ(view.cols(), 3);
  EXPECT_EQ(view.row<float>(1)[2], 6.0F);
  EXPECT_EQ(handle->info().name, info.name);
  EXPECT_EQ(handle->info().reference_count, 1);
}

TEST_F(StoredTensorTest, HandlesShowMasks) {
  const TensorSpec spec = {TensorKind::kMask, DType::kBool, 2, 9, 0};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const TensorInfo good, store_->Put(spec, BytesOf(std::string_view("\x05\x01\x80\x00", 4)), {},
                                         absl::InfiniteFuture()));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto handle, store_->Acquire(good.name));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Mask mask, handle->mask());
  EXPECT_TRUE(mask.Get(0, 0));
  EXPECT_FALSE(mask.Get(0, 1));
  EXPECT_TRUE(mask.Get(0, 8));
  EXPECT_TRUE(mask.Get(1, 7));
  EXPECT_EQ(mask.CountKept(), 4);
  EXPECT_TRUE(handle->matrix().empty());

  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo padded,
                                store_->Put(spec, BytesOf(std::string_view("\x05\x03\x80\x00", 4)),
                                            {}, absl::InfiniteFuture()));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto bad, store_->Acquire(padded.name));
  EXPECT_THAT(bad->mask(), StatusIs(absl::StatusCode::kInvalidArgument, "MASK_PADDING", "row 0"));
}

TEST_F(StoredTensorTest, InUseIsNotDeleted) {
  const TensorInfo info = NewTensor("abcd");
  auto first = store_->Acquire(info.name);
  auto second = store_->Acquire(info.name);
  EXPECT_EQ(store_->GetTensor(info.name)->reference_count, 2);
  const absl::Status in_use = store_->DeleteTensor(info.name);
  EXPECT_THAT(in_use, StatusIs(absl::StatusCode::kFailedPrecondition, "TENSOR_IN_USE", info.name,
                               "2 still hold it"));
  EXPECT_EQ(ReasonMetadataOf(in_use)["reference_count"], "2");
  *first = nullptr;
  EXPECT_THAT(store_->DeleteTensor(info.name),
              StatusIs(absl::StatusCode::kFailedPrecondition, "TENSOR_IN_USE"));
  EXPECT_EQ(TextOf((*second)->bytes()), "abcd");
  *second = nullptr;
  SPARSEFW_EXPECT_OK(store_->DeleteTensor(info.name));
  EXPECT_EQ(store_->usage().used_bytes, 0);
  EXPECT_EQ(SpoolFiles(), 0U);
}

// A reader may be slow: only jobs hold what they use.
TEST_F(StoredTensorTest, ReadingDoesNotKeepATensor) {
  const TensorInfo info = NewTensor("abcd");
  SPARSEFW_ASSERT_OK_AND_ASSIGN(auto reading, store_->OpenForReading(info.name));
  EXPECT_EQ(store_->GetTensor(info.name)->reference_count, 0);
  SPARSEFW_EXPECT_OK(store_->DeleteTensor(info.name));
  EXPECT_EQ(SpoolFiles(), 0U);
  EXPECT_EQ(TextOf(reading->bytes()), "abcd") << "and it reads on";
  EXPECT_EQ(store_->usage().used_bytes, 4) << "the memory is in use";
  reading = nullptr;
  EXPECT_EQ(store_->usage().used_bytes, 0);
  EXPECT_THAT(store_->OpenForReading(info.name),
              StatusIs(absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND"));
}

TEST_F(StoredTensorTest, UnusedUploadsExpire) {
  options_.tensor_ttl = absl::Hours(1);
  OpenStore();
  const TensorInfo unused = NewTensor("ab", "r1");
  const TensorInfo read = NewTensor("cd");
  const TensorInfo held = NewTensor("ef");
  const TensorInfo result = Put("gh");
  EXPECT_EQ(unused.expire_time, time_.Now() + absl::Hours(1));
  EXPECT_EQ(result.expire_time, absl::InfiniteFuture());
  auto handle = store_->Acquire(held.name);
  time_.Advance(absl::Minutes(59));
  SPARSEFW_EXPECT_OK(store_->OpenForReading(read.name));
  store_->CollectGarbage();
  EXPECT_EQ(store_->usage().tensors, 4);
  time_.Advance(absl::Minutes(1));
  store_->CollectGarbage();
  EXPECT_THAT(store_->GetTensor(unused.name), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(store_->GetTensor(read.name)->expire_time, time_.Now() + absl::Minutes(59));
  NewUpload(WeightOf(4), "r1");  // its request id is free again
  time_.Advance(absl::Hours(1));
  store_->CollectGarbage();
  EXPECT_THAT(store_->GetTensor(read.name), StatusIs(absl::StatusCode::kNotFound));
  SPARSEFW_EXPECT_OK(store_->GetTensor(held.name));
  *handle = nullptr;
  store_->CollectGarbage();
  SPARSEFW_EXPECT_OK(store_->GetTensor(held.name)) << "it was used until now";
  time_.Advance(absl::Hours(1));
  store_->CollectGarbage();
  EXPECT_THAT(store_->GetTensor(held.name), StatusIs(absl::StatusCode::kNotFound));
  SPARSEFW_EXPECT_OK(store_->GetTensor(result.name));
}

TEST_F(StoredTensorTest, ResultsOfAnInterruptedJobAreDeleted) {
  const auto put = [this](std::string_view job) {
    return store_->Put(WeightOf(2), BytesOf("ab"), {}, absl::InfiniteFuture(), nullptr, job)->name;
  };
  const std::string first = put("jobs/1");
  const std::string second = put("jobs/1");
  const std::string held = put("jobs/1");
  const std::string other = put("jobs/12");
  const std::string of_none = Put("ab").name;
  auto handle = store_->Acquire(held);
  EXPECT_EQ(store_->DeleteResultsOf("jobs/1"), 2);
  for (const std::string& name : {first, second}) {
    EXPECT_THAT(store_->GetTensor(name), StatusIs(absl::StatusCode::kNotFound));
  }
  for (const std::string& name : {held, other, of_none}) {
    SPARSEFW_EXPECT_OK(store_->GetTensor(name));
  }
  EXPECT_EQ(store_->DeleteResultsOf(""), 0);
  EXPECT_EQ(SpoolFiles(), 3U);
  *handle = nullptr;
  store_->CollectGarbage();
  EXPECT_THAT(store_->GetTensor(held), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(StoredTensorTest, ListsThoseOfATenant) {
  std::vector<std::string> theirs;
  for (int i = 0; i < 6; ++i) {
    const Owner owner = {i % 2 == 0 ? "acme" : "default", ""};
    const auto info = store_->Put(WeightOf(2), BytesOf("ab"), owner, absl::InfiniteFuture());
    if (i % 2 == 0) theirs.insert(theirs.begin(), info->name);
  }
  std::vector<std::string> seen;
  std::string token;
  do {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto page,
                                  store_->ListTensors(2, token, {.tenant = "acme"}));
    for (const TensorInfo& info : page.tensors) seen.push_back(info.name);
    token = page.next_page_token;
  } while (!token.empty());
  EXPECT_EQ(seen, theirs);
  EXPECT_EQ(store_->ListTensors(3, "", {.tenant = "acme"})->next_page_token, "")
      << "none but others follow";
  EXPECT_EQ(store_->ListTensors(10, "", {.tenant = "nobody"})->tensors.size(), 0U);
  EXPECT_EQ(store_->ListTensors(10, "")->tensors.size(), 6U);
}

TEST_F(StoredTensorTest, ListsByKindAndOwner) {
  const std::string weight = Put("ab").name;
  const TensorSpec mask = {TensorKind::kMask, DType::kBool, 1, 8, 0};
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const TensorInfo bobs,
      store_->Put(mask, BytesOf("m"), {"default", "bob"}, absl::InfiniteFuture()));
  const auto listed = [this](const TensorFilter& filter) {
    std::vector<std::string> names;
    const auto page = store_->ListTensors(10, "", filter);
    for (const TensorInfo& info : page->tensors) names.push_back(info.name);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(listed({}), (Names{bobs.name, weight}));
  EXPECT_EQ(listed({.kinds = {TensorKind::kMask}}), Names{bobs.name});
  EXPECT_EQ(listed({.kinds = {TensorKind::kWeight}}), Names{weight});
  EXPECT_EQ(listed({.kinds = {TensorKind::kGram}}), Names{});
  EXPECT_EQ(listed({.owner = "bob"}), Names{bobs.name});
  EXPECT_EQ(listed({.kinds = {TensorKind::kWeight}, .owner = "bob"}), Names{});
}

TEST_F(StoredTensorTest, UnknownNamesAreNotFound) {
  const TensorInfo info = NewTensor("abcd");
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(info.name));
  const auto not_found = StatusIs(absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND");
  for (const std::string& name : {info.name, std::string(), std::string("tensors/"),
                                  info.name.substr(8), "uploads/" + info.name.substr(8)}) {
    EXPECT_THAT(store_->GetTensor(name), not_found) << name;
    EXPECT_THAT(store_->Acquire(name), not_found) << name;
    EXPECT_THAT(store_->DeleteTensor(name), not_found) << name;
  }
}

TEST_F(StoredTensorTest, HandlesOutliveTheStore) {
  const TensorInfo info = NewTensor("abcd");
  auto handle = store_->Acquire(info.name);
  store_.reset();
  EXPECT_EQ(TextOf((*handle)->bytes()), "abcd");
  *handle = nullptr;
  EXPECT_EQ(SpoolFiles(), 0U);
  OpenStore();
}

TEST_F(StoredTensorTest, NothingExpiresEarlyWhenTheClockIsSetAhead) {
  const TensorInfo result = Put("ab", time_.Now() + absl::Hours(1));
  const UploadInfo upload = NewUpload(WeightOf(64));
  time_.Step(absl::Hours(2));
  store_->CollectGarbage();
  SPARSEFW_EXPECT_OK(store_->GetTensor(result.name));
  SPARSEFW_EXPECT_OK(store_->GetUpload(upload.name));
  time_.Advance(absl::Minutes(10));
  store_->CollectGarbage();
  EXPECT_THAT(store_->GetUpload(upload.name), StatusIs(absl::StatusCode::kNotFound));
  time_.Advance(absl::Minutes(50));
  store_->CollectGarbage();
  EXPECT_THAT(store_->GetTensor(result.name), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(StoredTensorTest, AnIdleUploadGoesWhenTheClockIsSetBack) {
  const UploadInfo upload = NewUpload(WeightOf(64));
  time_.Step(-absl::Hours(24));
  time_.Advance(absl::Minutes(10));
  store_->CollectGarbage();
  EXPECT_THAT(store_->GetUpload(upload.name), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(StoredTensorTest, ExpiredTensorsGoWhenNobodyHoldsThem) {
  const TensorInfo soon = Put("ab", time_.Now() + absl::Seconds(10));
  const TensorInfo held = Put("cd", time_.Now() + absl::Seconds(10));
  const TensorInfo later = Put("ef", time_.Now() + absl::Seconds(20));
  const TensorInfo forever = NewTensor("gh");
  auto handle = store_->Acquire(held.name);
  time_.Advance(absl::Seconds(10) - absl::Nanoseconds(1));
  store_->CollectGarbage();
  EXPECT_EQ(store_->usage().tensors, 4);
  time_.Advance(absl::Nanoseconds(1));
  store_->CollectGarbage();
  EXPECT_THAT(store_->GetTensor(soon.name), StatusIs(absl::StatusCode::kNotFound));
  SPARSEFW_EXPECT_OK(store_->GetTensor(held.name));
  SPARSEFW_EXPECT_OK(store_->GetTensor(later.name));
  *handle = nullptr;
  store_->CollectGarbage();
  EXPECT_THAT(store_->GetTensor(held.name), StatusIs(absl::StatusCode::kNotFound));
  time_.Advance(absl::Hours(24 * 365));
  store_->CollectGarbage();
  EXPECT_EQ(store_->usage().tensors, 1);
  EXPECT_EQ(store_->usage().used_bytes, 2);
  EXPECT_EQ(SpoolFiles(), 1U);
  SPARSEFW_EXPECT_OK(store_->GetTensor(forever.name));
}

TEST_F(StoredTensorTest, ListsNewestFirst) {
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) names.insert(names.begin(), Put("ab").name);  // at the same time
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorStore::Page page, store_->ListTensors(100, ""));
  ASSERT_EQ(page.tensors.size(), 5U);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(page.tensors[i].name, names[i]);
  EXPECT_EQ(page.next_page_token, "");
}

TEST_F(StoredTensorTest, PageSizes) {
  for (int i = 0; i < 1005; ++i) Put("ab");
  EXPECT_EQ(store_->ListTensors(7, "")->tensors.size(), 7U);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto first, store_->ListTensors(1000, ""));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto second,
                                store_->ListTensors(1000, first.next_page_token));
  EXPECT_EQ(second.tensors.size(), 5U);
  EXPECT_EQ(second.next_page_token, "");
  EXPECT_THAT(store_->ListTensors(0, ""),
              StatusIs(absl::StatusCode::kInvalidArgument, "PAGE_SIZE_INVALID", "got 0"));
}

TEST_F(StoredTensorTest, AnExactPageIsTheLast) {
  for (int i = 0; i < 4; ++i) Put("ab");
  EXPECT_EQ(store_->ListTensors(4, "")->next_page_token, "");
  EXPECT_NE(store_->ListTensors(3, "")->next_page_token, "");
}

TEST_F(StoredTensorTest, PagesAreStableUnderChange) {
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) names.push_back(Put("ab").name);
  std::set<std::string> kept(names.begin(), names.end());
  std::multiset<std::string> seen;
  std::string token;
  int page_number = 0;
  do {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto page, store_->ListTensors(3, token));
    for (const TensorInfo& info : page.tensors) seen.insert(info.name);
    token = page.next_page_token;
    Put("cd");  // newer than all: never in this walk
    if (page_number == 0) {
      // The last of the page, which the token stands on, one that was seen and one that was not.
      for (const std::string& gone : {page.tensors.back().name, names[10], names[1]}) {
        SPARSEFW_ASSERT_OK(store_->DeleteTensor(gone));
        kept.erase(gone);
      }
    }
    ++page_number;
  } while (!token.empty());
  for (const std::string& name : kept) EXPECT_EQ(seen.count(name), 1U) << name;
  EXPECT_EQ(seen.count(names[1]), 0U);
  EXPECT_EQ(seen.size(), 11U) << "neither twice nor what came later";
}

TEST_F(StoredTensorTest, ForeignPageTokensAreRefused) {
  for (int i = 0; i < 3; ++i) Put("ab");
  const std::string token = store_->ListTensors(1, "")->next_page_token;
  SPARSEFW_EXPECT_OK(store_->ListTensors(1, token));
  const auto invalid = StatusIs(absl::StatusCode::kInvalidArgument, "PAGE_TOKEN_INVALID");
  EXPECT_THAT(store_->ListTensors(1, "1"), invalid);
  EXPECT_THAT(store_->ListTensors(1, token + "0"), invalid);
  EXPECT_THAT(store_->ListTensors(1, std::string(1'000'000, '0')), invalid);
  OpenStore();
  EXPECT_THAT(store_->ListTensors(1, token), invalid) << "of an earlier run";
}

}  // namespace
}  // namespace sparsefw::server
