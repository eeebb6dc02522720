// Many callers at once. Run under ThreadSanitizer too.
#include <atomic>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/tensors/faulty_spool.h"
#include "tests/server/tensors/store_fixture.h"

namespace sparsefw::server {
namespace {

class TensorConcurrencyTest : public StoreFixture {
 protected:
  static constexpr int kThreads = 4;

  void InThreads(const std::function<void(uint64_t)>& body) {
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < kThreads; ++i) threads.emplace_back(body, i);
    for (std::thread& thread : threads) thread.join();
  }
  void OpenFaultyStore() {
    store_.reset();
    auto spool = OpenSpoolFolder(options_.spool_dir);
    ASSERT_THAT(spool, IsOk());
    OpenStoreOver(std::make_shared<FaultySpool>(*std::move(spool), faults_));
  }
  const std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
};

TEST_F(TensorConcurrencyTest, WritersOfOneUploadAreSerialised) {
  const std::string text = RandomText(100'000, 7);
  const UploadInfo upload = NewUpload(WeightOf(static_cast<int64_t>(text.size())));
  InThreads([&](uint64_t seed) {
    std::mt19937_64 random(seed);
    int64_t offset = 0;
    while (offset < static_cast<int64_t>(text.size())) {
      const std::string chunk = text.substr(static_cast<size_t>(offset), 1 + random() % 900);
      const auto committed = Write(upload.name, offset, chunk);
      ASSERT_THAT(committed, IsOk());
      ASSERT_GE(*committed, offset + static_cast<int64_t>(chunk.size()));
      // Half of the time from the end of its own chunk: what others wrote is skipped.
      offset = (random() & 1U) != 0 ? *committed : offset + static_cast<int64_t>(chunk.size());
    }
  });
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, Crc(text)));
  EXPECT_TRUE(Read(tensor.name) == text);
}

TEST_F(TensorConcurrencyTest, AccumulatorsOfOneUploadAreSerialised) {
  constexpr int64_t kTokens = 400;
  std::vector<float> values(kTokens * 2);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 5);
  double expected = 0;
  for (size_t i = 0; i < values.size(); i += 2) expected += double{values[i]} * double{values[i]};
  const UploadInfo upload = NewGramUpload({2, DType::kF32, DType::kF64});
  InThreads([&](uint64_t seed) {
    std::mt19937_64 random(seed);
    int64_t offset = 0;
    while (offset < kTokens) {
      const int64_t count =
          std::min<int64_t>(kTokens - offset, 1 + static_cast<int64_t>(random() % 9));
      const auto bytes = std::as_bytes(std::span(values).subspan(static_cast<size_t>(offset * 2),
                                                                 static_cast<size_t>(count * 2)));
      ASSERT_THAT(store_->Accumulate(upload.name, offset, bytes, Crc32c(bytes)), IsOk());
      offset += count;
    }
  });
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto handle, store_->Acquire(tensor.name));
  EXPECT_EQ(tensor.spec.token_count, kTokens);
  EXPECT_EQ(handle->matrix().row<double>(0)[0], expected);
}

TEST_F(TensorConcurrencyTest, UploadsRunInParallel) {
  InThreads([&](uint64_t thread) {
    for (uint64_t round = 0; round < 25; ++round) {
      const std::string text = RandomText(2 * (1 + (thread * 131 + round * 17) % 3000), thread);
      const TensorInfo tensor = NewTensor(text, std::to_string(thread * 1000 + round));
      EXPECT_TRUE(Read(tensor.name) == text);
      EXPECT_THAT(store_->ListTensors(3, ""), IsOk());
      EXPECT_THAT(store_->DeleteTensor(tensor.name), IsOk());
    }
  });
  EXPECT_EQ(store_->usage().used_bytes, 0);
  EXPECT_EQ(store_->usage().tensors, 0);
  EXPECT_EQ(SpoolFiles(), 0U);
}

TEST_F(TensorConcurrencyTest, OneRequestIdMakesOneUpload) {
  for (int round = 0; round < 20; ++round) {
    Mutex mutex;
    std::set<std::string> names;
    InThreads([&](uint64_t) {
      const UploadInfo info = NewUpload(WeightOf(10), "round" + std::to_string(round));
      MutexLock lock(mutex);
      names.insert(info.name);
    });
    EXPECT_EQ(names.size(), 1U);
  }
  EXPECT_EQ(store_->usage().uploads, 20);
  EXPECT_EQ(store_->usage().used_bytes, 200);
}

TEST_F(TensorConcurrencyTest, EverybodyWhoFinishesGetsTheTensor) {
  for (int round = 0; round < 20; ++round) {
    const UploadInfo upload = NewUpload(WeightOf(4), "round" + std::to_string(round));
    ASSERT_THAT(Write(upload.name, 0, "abcd"), IsOk());
    Mutex mutex;
    std::set<std::string> names;
    InThreads([&](uint64_t thread) {
      std::string name;
      if (thread == 0) {
        // The id gives the upload or the tensor, whichever it is just then.
        const auto created =
            store_->CreateUpload(WeightOf(4), "round" + std::to_string(round), kAlice);
        ASSERT_THAT(created, IsOk());
      }
      const auto tensor = store_->Finish(upload.name, Crc("abcd"));
      ASSERT_THAT(tensor, IsOk());
      MutexLock lock(mutex);
      names.insert(tensor->name);
    });
    EXPECT_EQ(names.size(), 1U);
  }
  EXPECT_EQ(store_->usage().tensors, 20);
  EXPECT_EQ(store_->usage().uploads, 0);
}

TEST_F(TensorConcurrencyTest, HeldOrDeletedButNotBoth) {
  for (int round = 0; round < 50; ++round) {
    const TensorInfo tensor = NewTensor("abcd");
    std::atomic<int> deleted{0};
    InThreads([&](uint64_t thread) {
      if (thread % 2 == 0) {
        const auto handle = store_->Acquire(tensor.name);
        if (handle.ok()) {
          EXPECT_EQ(TextOf((*handle)->bytes()), "abcd");
        } else {
          EXPECT_THAT(handle, StatusIs(absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND"));
        }
      } else {
        const absl::Status status = store_->DeleteTensor(tensor.name);
        if (status.ok()) ++deleted;
        EXPECT_TRUE(status.ok() || absl::IsNotFound(status) || absl::IsFailedPrecondition(status))
            << status;
      }
    });
    EXPECT_LE(deleted, 1);
    if (deleted == 0) {
      SPARSEFW_ASSERT_OK(store_->DeleteTensor(tensor.name));
    }
  }
  EXPECT_EQ(store_->usage().used_bytes, 0);
}

// Everything at once, for races and leaks: nothing may be left at the end.
TEST_F(TensorConcurrencyTest, ChaosLeavesNothing) {
  options_.budget_bytes = 20'000;  // so that admission refuses now and then
  options_.upload_idle_ttl = absl::Seconds(5);
  OpenStore();
  std::atomic<int> refused{0};
  InThreads([&](uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::string> uploads;
    std::vector<std::string> tensors;
    const auto pick = [&](std::vector<std::string>& from) {
      return from.empty() ? std::string() : from[random() % from.size()];
    };
    for (int i = 0; i < 600; ++i) {
      EXPECT_LE(store_->usage().used_bytes, 20'000);
      switch (random() % 9) {
        case 0:
        case 1: {
          const auto created =
              store_->CreateUpload(WeightOf(static_cast<int64_t>(2 * (1 + random() % 2000))),
                                   random() % 2 == 0 ? "" : std::to_string(random()), {});
          if (created.ok()) {
            uploads.push_back(std::get<UploadInfo>(*created).name);
          } else {
            EXPECT_THAT(created, StatusIs(absl::StatusCode::kResourceExhausted, "HOST_MEMORY"));
            ++refused;
          }
          break;
        }
        case 2:
        case 3: {
          const auto info = store_->GetUpload(pick(uploads));
          if (!info.ok()) break;
          const std::string rest(static_cast<size_t>(ByteSize(info->spec) - info->committed_size),
                                 'x');
          if (!Write(info->name, info->committed_size, rest).ok()) break;
          if (const auto tensor = store_->Finish(info->name, {}); tensor.ok()) {
            tensors.push_back(tensor->name);
          }
          break;
        }
        case 4:
          store_->DeleteUpload(pick(uploads)).IgnoreError();
          break;
        case 5:
          store_->DeleteTensor(pick(tensors)).IgnoreError();
          break;
        case 6:
          if (const auto handle = store_->Acquire(pick(tensors)); handle.ok()) {
            EXPECT_EQ(Crc32c((*handle)->bytes()), (*handle)->info().crc32c);
          }
          break;
        case 7:
          if (const auto put =
                  store_->Put(WeightOf(4), BytesOf("abcd"), {}, time_.Now() + absl::Seconds(3));
              put.ok()) {
            tensors.push_back(put->name);
          }
          break;
        case 8:
          time_.Advance(absl::Seconds(1));
          store_->CollectGarbage();
          break;
      }
    }
    for (const std::string& name : tensors) store_->DeleteTensor(name).IgnoreError();
  });
  EXPECT_GT(refused, 0) << "the budget was never tight";
  time_.Advance(absl::Hours(1));
  store_->CollectGarbage();
  EXPECT_EQ(store_->usage().used_bytes, 0);
  EXPECT_EQ(store_->usage().tensors, 0);
  EXPECT_EQ(store_->usage().uploads, 0);
  EXPECT_EQ(SpoolFiles(), 0U);
}

// With the disk standing still under one upload, everything else goes on. A
// store that held its lock meanwhile would hang here.
TEST_F(TensorConcurrencyTest, SlowDiskStopsOnlyItsUpload) {
  OpenFaultyStore();
  const TensorInfo tensor = NewTensor("abcd");
  const UploadInfo slow = NewUpload(WeightOf(4), "slow");
  const UploadInfo idle = NewUpload(WeightOf(4));
  faults_->Stop();
  std::thread writer([&] { EXPECT_EQ(*Write(slow.name, 0, "abcd"), 4); });
  std::thread creator([&] { NewUpload(WeightOf(6), "new"); });
  faults_->AwaitStopped(2);

  EXPECT_EQ(Read(tensor.name), "abcd");
  EXPECT_EQ(store_->ListTensors(1000, "")->tensors.size(), 1U);
  EXPECT_EQ(store_->usage().uploads, 3);
  EXPECT_THAT(store_->GetUpload(idle.name), IsOk());
  EXPECT_EQ(*Write(idle.name, 0, ""), 0);
  store_->CollectGarbage();
  EXPECT_THAT(store_->DeleteUpload(idle.name), IsOk());
  EXPECT_THAT(store_->DeleteTensor(tensor.name), IsOk());

  faults_->Go();
  writer.join();
  creator.join();
  EXPECT_THAT(store_->Finish(slow.name, Crc("abcd")), IsOk());
}

// Two callers with one request id while the file is being made: both hear of the failure.
TEST_F(TensorConcurrencyTest, FailedCreationIsToldToAllWhoAsked) {
  OpenFaultyStore();
  faults_->Stop();
  absl::Status first;
  absl::Status second;
  std::thread one([&] { first = store_->CreateUpload(WeightOf(6), "r", {}).status(); });
  faults_->AwaitStopped(1);
  std::thread two([&] { second = store_->CreateUpload(WeightOf(6), "r", {}).status(); });
  faults_->FailCreate(DiskFull());
  faults_->Go();
  one.join();
  two.join();
  EXPECT_THAT(first, StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
  EXPECT_THAT(second, StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
  EXPECT_EQ(store_->usage().uploads, 0);
  EXPECT_EQ(store_->usage().used_bytes, 0);
}

}  // namespace
}  // namespace sparsefw::server
