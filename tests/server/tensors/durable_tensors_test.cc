// Tensors over restarts: what survives, what is swept, what is found damaged.
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tensors/store/spool_match.h"
#include "tests/server/tensors/durable_fixture.h"
#include "tests/testing/hang.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class DurableTensorsTest : public DurableFixture {
 protected:
  TensorInfo Put(std::string_view text, absl::Time expire_time = absl::InfiniteFuture(),
                 std::string_view job = {}) {
    return *store_->Put(WeightOf(static_cast<int64_t>(text.size())), BytesOf(text),
                        Owner{"acme", "bob"}, expire_time, nullptr, job);
  }
  std::vector<std::string> Names(int page_size = 1000) {
    std::vector<std::string> names;
    std::string token;
    do {
      const auto page = store_->ListTensors(page_size, token);
      for (const TensorInfo& info : page->tensors) names.push_back(info.name);
      token = page->next_page_token;
    } while (!token.empty());
    return names;
  }
  void AwaitChecks() {
    ASSERT_TRUE(Eventually([&] { return store_->usage().unchecked == 0; }));
  }
};

TEST_F(DurableTensorsTest, AreThereAfterAKillWithEverything) {
  const TensorInfo uploaded = NewTensor("abcdef", "r1");
  time_.Advance(absl::Seconds(5));
  const TensorInfo put = Put("gh", time_.Now() + absl::Hours(3));
  for (const bool killed : {true, false}) {
    if (killed) Kill();
    if (!killed) Restart();
    for (const TensorInfo& before : {uploaded, put}) {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo after, store_->GetTensor(before.name));
      EXPECT_EQ(after.spec, before.spec);
      EXPECT_EQ(after.byte_size, before.byte_size);
      EXPECT_EQ(after.crc32c, before.crc32c);
      EXPECT_EQ(after.create_time, before.create_time);
      EXPECT_EQ(after.expire_time, before.expire_time);
      EXPECT_EQ(after.owner, before.owner);
    }
    EXPECT_EQ(Read(uploaded.name), "abcdef");
    EXPECT_EQ(Read(put.name), "gh");
    EXPECT_EQ(store_->usage().used_bytes, 8);
    EXPECT_EQ(store_->usage().disk_used_bytes, 8);
    EXPECT_THAT(Incidents(), IsEmpty());
    const auto again = store_->CreateUpload(WeightOf(6), "r1", kAlice);
    EXPECT_EQ(std::get<TensorInfo>(*again).name, uploaded.name);
    EXPECT_THAT(store_->CreateUpload(WeightOf(8), "r1", kAlice),
                StatusIs(absl::StatusCode::kInvalidArgument, "REQUEST_ID_REUSED"));
    SPARSEFW_EXPECT_OK(store_->Finish("uploads/" + uploaded.name.substr(8), Crc("abcdef")));
  }
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(uploaded.name));
  Kill();
  EXPECT_THAT(store_->GetTensor(uploaded.name), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(SpoolFiles(), 1U);
  NewUpload(WeightOf(8), "r1");
}

TEST_F(DurableTensorsTest, OrderAndPageTokensGoOn) {
  std::vector<std::string> names;
  for (int i = 0; i < 7; ++i) {
    names.insert(names.begin(), i % 2 == 0 ? Put("ab").name : NewTensor("cd").name);
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto page, store_->ListTensors(3, ""));
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(names[0]));
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(names[2]));
  Kill();
  EXPECT_EQ(Names(2), (std::vector<std::string>{names[1], names[3], names[4], names[5], names[6]}));
  Put("ef");  // newer: not in the walk that goes on
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto rest, store_->ListTensors(10, page.next_page_token));
  std::vector<std::string> seen;
  for (const TensorInfo& info : rest.tensors) seen.push_back(info.name);
  EXPECT_EQ(seen, std::vector<std::string>(names.begin() + 3, names.end()));
}

TEST_F(DurableTensorsTest, OrphansAndRowsWithoutFilesAreSwept) {
  const TensorInfo kept = NewTensor("abcd");
  const TensorInfo lost = NewTensor("efgh", "r1");
  const std::string orphan = "0123456789abcdef0123456789abcdef";
  testing::WriteFile(FileOf("tensors/" + orphan), "of a Put that was killed");
  testing::WriteFile(options_.spool_dir + "/thesis.tex", "not ours");
  std::filesystem::remove(FileOf(lost.name));
  Kill();
  EXPECT_THAT(Incidents(),
              UnorderedElementsAre("orphan_file " + orphan, "missing_file " + lost.name));
  EXPECT_THAT(Names(), ElementsAre(kept.name));
  EXPECT_FALSE(std::filesystem::exists(FileOf("tensors/" + orphan)));
  EXPECT_TRUE(std::filesystem::exists(options_.spool_dir + "/thesis.tex"));
  EXPECT_EQ(store_->usage().used_bytes, 4);
  NewUpload(WeightOf(2), "r1");
  Restart();
  EXPECT_THAT(Incidents(), IsEmpty()) << "once";
}

TEST_F(DurableTensorsTest, ATruncatedFileIsFoundAtTheStart) {
  const TensorInfo tensor = NewTensor("abcdef");
  std::filesystem::resize_file(FileOf(tensor.name), 5);
  Kill();
  EXPECT_THAT(Incidents(), ElementsAre("corrupt_tensor " + tensor.name));
  EXPECT_EQ(store_->usage().corrupt, 1);
  SPARSEFW_EXPECT_OK(store_->GetTensor(tensor.name));
  const auto corrupt = StatusIs(absl::StatusCode::kDataLoss, "TENSOR_CORRUPT", "6 bytes; it has 5");
  EXPECT_THAT(store_->Acquire(tensor.name), corrupt);
  EXPECT_THAT(store_->OpenForReading(tensor.name), corrupt);
  EXPECT_EQ(store_->GetTensor(tensor.name)->reference_count, 0);
  SPARSEFW_EXPECT_OK(store_->DeleteTensor(tensor.name));
  EXPECT_EQ(SpoolFiles(), 0U);
  EXPECT_EQ(store_->usage().used_bytes, 0);
}

TEST_F(DurableTensorsTest, AFlippedBitIsFoundBeforeTheFirstUse) {
  const std::string text = RandomText(3 << 18, 1);
  const TensorInfo good = NewTensor(text);
  const TensorInfo bad = NewTensor("abcdef");
  Flip(FileOf(bad.name), 3);
  Kill();
  EXPECT_THAT(store_->Acquire(bad.name), StatusIs(absl::StatusCode::kDataLoss, "TENSOR_CORRUPT"));
  EXPECT_EQ(store_->GetTensor(bad.name)->reference_count, 0);
  EXPECT_TRUE(Read(good.name) == text);
  EXPECT_THAT(Incidents(), ElementsAre("corrupt_tensor " + bad.name));
  EXPECT_EQ(store_->usage().corrupt, 1);
  EXPECT_EQ(store_->usage().unchecked, 0);
}

TEST_F(DurableTensorsTest, OneThatIsDeletedUncheckedIsUncheckedNoLonger) {
  const TensorInfo tensor = NewTensor("abcdef");
  faults_->FailMap(absl::InternalError("the disk does not answer"));
  Kill();
  EXPECT_EQ(store_->usage().unchecked, 1);
  SPARSEFW_EXPECT_OK(store_->DeleteTensor(tensor.name));
  EXPECT_EQ(store_->usage().unchecked, 0);
  faults_->FailMap(absl::OkStatus());
}

// The job of a server that is shut down, a deadline, and a reader who has gone do not wait for
// gigabytes.
TEST_F(DurableTensorsTest, TheCheckBeforeAUseCanBeStopped) {
  const TensorInfo tensor = NewTensor("abcdef");
  faults_->FailMap(absl::InternalError("the disk does not answer"));
  Kill();
  StopSignal stop;
  stop.Request();
  EXPECT_THAT(store_->Acquire(tensor.name, &stop), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(store_->OpenForReading(tensor.name, &stop), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(store_->GetTensor(tensor.name)->reference_count, 0);
  faults_->FailMap(absl::OkStatus());
  EXPECT_EQ(Read(tensor.name), "abcdef");
}

TEST_F(DurableTensorsTest, BytesAreCheckedWithoutAUse) {
  std::vector<std::string> bad;
  for (int i = 0; i < 6; ++i) {
    const TensorInfo tensor = NewTensor("abcdef");
    if (i % 2 == 0) bad.push_back("corrupt_tensor " + tensor.name);
    if (i % 2 == 0) Flip(FileOf(tensor.name), i);
  }
  Kill();
  AwaitChecks();
  EXPECT_THAT(Incidents(), ::testing::UnorderedElementsAreArray(bad));
  EXPECT_EQ(store_->usage().corrupt, 3);
}

TEST_F(DurableTensorsTest, ManyUsersOfACorruptTensorCountOnce) {
  const TensorInfo bad = NewTensor("abcdef");
  Flip(FileOf(bad.name), 0);
  Kill();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      EXPECT_THAT(store_->Acquire(bad.name),
                  StatusIs(absl::StatusCode::kDataLoss, "TENSOR_CORRUPT"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  AwaitChecks();
  EXPECT_EQ(Incidents().size(), 1U);
}

// A disk that cannot be read now says nothing about the tensor.
TEST_F(DurableTensorsTest, AFailedCheckIsMadeAgain) {
  const TensorInfo tensor = NewTensor("abcdef");
  faults_->FailMap(DiskBroken());
  Kill();
  EXPECT_THAT(store_->Acquire(tensor.name), StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED"));
  EXPECT_EQ(store_->usage().corrupt, 0);
  faults_->FailMap(absl::OkStatus());
  EXPECT_EQ(Read(tensor.name), "abcdef");
}

TEST_F(DurableTensorsTest, TransientOnesThatNoJobHoldsGoInTheNextRun) {
  const auto make = [this](UploadLife life) {
    const auto created = store_->CreateUpload(WeightOf(4), "", kAlice, life);
    const std::string name = std::get<UploadInfo>(*created).name;
    EXPECT_THAT(Write(name, 0, "abcd"), IsOk());
    return name;
  };
  const auto finish = [this](const std::string& name) { return store_->Finish(name, {})->name; };
  make(UploadLife::kStream);
  make(UploadLife::kJob);
  const std::string of_stream = finish(make(UploadLife::kStream));
  const std::string left = finish(make(UploadLife::kJob));
  const std::string of_job = finish(make(UploadLife::kJob));
  Kill();
  EXPECT_THAT(Names(), ElementsAre(of_job, left, of_stream));
  EXPECT_EQ(store_->usage().uploads, 0) << "those of streams end with the process";
  EXPECT_EQ(SpoolFiles(), 3U);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(auto held, store_->Acquire(of_job));
  store_->ReleaseLeft({});
  store_->ReleaseTransient(of_stream);
  EXPECT_THAT(Names(), ElementsAre(of_job, of_stream)) << "held, and not a job's";
  held.reset();
  store_->CollectGarbage();
  EXPECT_THAT(Names(), ElementsAre(of_job, of_stream)) << "its job may go on in the next run";
  SPARSEFW_ASSERT_OK_AND_ASSIGN(held, store_->Acquire(of_job));
  store_->ReleaseTransient(of_job);
  EXPECT_THAT(Names(), ElementsAre(of_job, of_stream));
  held.reset();  // by a job that was refused, say: nobody releases it once more
  store_->CollectGarbage();
  EXPECT_THAT(Names(), ElementsAre(of_stream));
}

TEST_F(DurableTensorsTest, ResultsWithoutAJobGoInTheNextRun) {
  const TensorInfo kept = Put("ab", absl::InfiniteFuture(), "jobs/1");
  Put("cd", absl::InfiniteFuture(), "jobs/2");
  Put("ef", absl::InfiniteFuture(), "jobs/2");
  const TensorInfo of_none = Put("gh");
  Kill();
  store_->ReleaseLeft([](std::string_view job, std::string_view tenant) {
    EXPECT_EQ(tenant, "acme");
    return job == "jobs/1";
  });
  EXPECT_THAT(Names(), ElementsAre(of_none.name, kept.name));
}

TEST_F(DurableTensorsTest, ResultsOfAJobAreKnownAfterAKill) {
  Put("ab", absl::InfiniteFuture(), "jobs/1");
  Put("cd", absl::InfiniteFuture(), "jobs/1");
  const TensorInfo other = Put("ef", absl::InfiniteFuture(), "jobs/2");
  Kill();
  EXPECT_EQ(store_->DeleteResultsOf("jobs/1"), 2);
  Kill();
  EXPECT_EQ(store_->DeleteResultsOf("jobs/1"), 0);
  EXPECT_THAT(Names(), ElementsAre(other.name));
}

TEST_F(DurableTensorsTest, ExpireOverRestarts) {
  options_.tensor_ttl = absl::Hours(1);
  Restart();
  const TensorInfo result = Put("ab", time_.Now() + absl::Minutes(30));
  const TensorInfo unused = NewTensor("cd");
  const TensorInfo used = NewTensor("ef");
  time_.Advance(absl::Minutes(29));
  EXPECT_EQ(Read(used.name), "ef");
  store_->CollectGarbage();
  Kill();
  EXPECT_EQ(Names().size(), 3U);
  time_.Advance(absl::Minutes(1));
  store_->CollectGarbage();
  EXPECT_THAT(Names(), ElementsAre(used.name, unused.name));
  time_.Advance(absl::Minutes(30));
  Kill();
  store_->CollectGarbage();
  EXPECT_THAT(Names(), ElementsAre(used.name));
  Kill();
  EXPECT_THAT(Names(), ElementsAre(used.name));
  EXPECT_EQ(SpoolFiles(), 1U);
  options_.tensor_ttl = absl::InfiniteDuration();
  Restart();
  EXPECT_EQ(store_->GetTensor(used.name)->expire_time, absl::InfiniteFuture());
}

// Nothing can be freed on a full disk if a deletion needs room there.
TEST_F(DurableTensorsTest, DeletesOnAFullDisk) {
  const TensorInfo tensor = NewTensor("abcd", "r1");
  catalog_->Fail(StoreFull());
  EXPECT_THAT(store_->Put(WeightOf(2), BytesOf("ab"), {}, absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kResourceExhausted, "STORE_FULL"));
  EXPECT_EQ(SpoolFiles(), 1U) << "a failed Put leaves nothing";
  SPARSEFW_EXPECT_OK(store_->DeleteTensor(tensor.name));
  EXPECT_EQ(SpoolFiles(), 0U);
  EXPECT_EQ(store_->usage().used_bytes, 0);
  Kill();
  EXPECT_THAT(Incidents(), IsEmpty()) << "it is known why the file is missing";
  EXPECT_THAT(Names(), IsEmpty());
}

// The start knows that they were deleted; it would ask for so many missing files.
TEST_F(DurableTensorsTest, ManyDeletionsOnAFullDiskAndAKill) {
  const TensorInfo kept = NewTensor("abcd");
  std::vector<std::string> deleted;
  for (size_t i = 0; i < 3 * kDeletedAtOnce; ++i) deleted.push_back(NewTensor("efgh").name);
  catalog_->Fail(StoreFull());
  for (const std::string& name : deleted) SPARSEFW_ASSERT_OK(store_->DeleteTensor(name));
  EXPECT_EQ(SpoolFiles(), 1U);
  Kill();
  EXPECT_THAT(Names(), ElementsAre(kept.name));
  EXPECT_EQ(MarkedAsDeleted(), 0U);
  // Once there is room, without a restart.
  catalog_->Fail(StoreFull());
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(kept.name));
  EXPECT_EQ(MarkedAsDeleted(), 1U);
  store_->CollectGarbage();
  EXPECT_EQ(MarkedAsDeleted(), 1U);
  catalog_->Fail(absl::OkStatus());
  store_->CollectGarbage();
  EXPECT_EQ(MarkedAsDeleted(), 0U);
  Kill();
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_THAT(Incidents(), IsEmpty());
}

// Nothing but its name says that a file is a part: one that a record names is a tensor's.
TEST_F(DurableTensorsTest, AKillBesideTheRecordChangesNothing) {
  const TensorInfo tensor = NewTensor("abcd");
  const UploadInfo upload = NewUpload(WeightOf(4));
  const auto as_part = [](const std::string& file) {
    return file.substr(0, file.rfind('.')) + ".part";
  };
  for (const std::string& name : {tensor.name, upload.name}) {
    std::filesystem::rename(FileOf(name), as_part(FileOf(name)));
  }
  Kill();
  EXPECT_THAT(Incidents(), IsEmpty());
  EXPECT_EQ(Read(tensor.name), "abcd");
  for (const std::string& name : {tensor.name, upload.name}) {
    EXPECT_TRUE(std::filesystem::exists(FileOf(name)));
  }
  ASSERT_THAT(Write(upload.name, 0, "efgh"), IsOk());
  SPARSEFW_ASSERT_OK(store_->Finish(upload.name, {}));
}

TEST_F(DurableTensorsTest, NoNumberOfStreamsMakesAStartAsk) {
  const TensorInfo kept = NewTensor("abcd");
  for (size_t i = 0; i < 3 * kDeletedAtOnce; ++i) {
    SPARSEFW_ASSERT_OK(store_->CreateUpload(WeightOf(4), "", {}, UploadLife::kStream));
  }
  EXPECT_EQ(SpoolFiles(), 3 * kDeletedAtOnce + 1);
  Kill();
  EXPECT_THAT(Names(), ElementsAre(kept.name));
  EXPECT_EQ(SpoolFiles(), 1U);
}

TEST_F(DurableTensorsTest, ARecordThatCouldNotBeDeletedGoesLater) {
  const TensorInfo tensor = NewTensor("abcd", "r1");
  catalog_->Fail(StoreFull());
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(tensor.name));
  catalog_->Fail(absl::OkStatus());
  NewUpload(WeightOf(2), "r1");  // its request id is free again
  store_->CollectGarbage();
  Kill();
  EXPECT_THAT(Incidents(), IsEmpty());
}

TEST_F(DurableTensorsTest, MoreThanTheBudgetIsKeptButNothingAdded) {
  const std::string text = RandomText(1000, 1);
  const TensorInfo tensor = NewTensor(text);
  options_.budget_bytes = 500;
  options_.disk_budget_bytes = 600;
  Restart();
  EXPECT_TRUE(Read(tensor.name) == text);
  EXPECT_EQ(store_->usage().used_bytes, 1000);
  EXPECT_THAT(store_->CreateUpload(WeightOf(2), "", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "HOST_MEMORY"));
  SPARSEFW_ASSERT_OK(store_->DeleteTensor(tensor.name));
  // The thread that checks tensors of an earlier run may hold it a moment longer.
  EXPECT_TRUE(Eventually([&] { return store_->usage().used_bytes == 0; }));
  SPARSEFW_EXPECT_OK(store_->CreateUpload(WeightOf(500), "", {}));
}

}  // namespace
}  // namespace sparsefw::server
