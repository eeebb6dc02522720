// A tensor store in a folder of its own, with a clock that the test moves.
#ifndef SPARSEFW_TESTS_SERVER_TENSORS_STORE_FIXTURE_H_
#define SPARSEFW_TESTS_SERVER_TENSORS_STORE_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/tensors/spool/spool.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/backend.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/mutex.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::server {

using testing::IsOk;
using testing::StatusIs;

inline const Owner kAlice = {"default", "alice"};

using Created = std::variant<UploadInfo, TensorInfo>;

class FakeTime {
 public:
  absl::Time Now() {
    MutexLock lock(mutex_);
    return now_;
  }
  absl::Time SteadyNow() {
    MutexLock lock(mutex_);
    return now_ - step_;
  }
  void Advance(absl::Duration duration) {
    MutexLock lock(mutex_);
    now_ += duration;
  }
  // Somebody sets the wall clock.
  void Step(absl::Duration duration) {
    MutexLock lock(mutex_);
    now_ += duration;
    step_ += duration;
  }

 private:
  Mutex mutex_;
  absl::Duration step_ ABSL_GUARDED_BY(mutex_);
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1'700'000'000);
};

inline std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text));
}
inline std::string TextOf(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
inline uint32_t Crc(std::string_view text) { return Crc32c(BytesOf(text)); }

inline std::string RandomText(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// A weight of `bytes` bytes.
inline TensorSpec WeightOf(int64_t bytes) {
  return TensorSpec{TensorKind::kWeight, DType::kF16, 1, bytes / 2, 0};
}

class StoreFixture : public ::testing::Test {
 protected:
  static constexpr int64_t kBudget = 1 << 20;

  StoreFixture() {
    options_.spool_dir = folder_.File("spool");
    options_.budget_bytes = kBudget;
    options_.now = [this] { return time_.Now(); };
    options_.steady_now = [this] { return time_.SteadyNow(); };
    options_.gram_backend = *FindBackend("reference");
    options_.gram_threads = 1;
  }
  void SetUp() override { OpenStore(); }

  void OpenStore() {
    store_.reset();
    auto store = TensorStore::Open(options_);
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
  }
  // Over a spool of the test's own.
  void OpenStoreOver(std::shared_ptr<Spool> spool) {
    store_.reset();
    auto store = TensorStore::Open(options_, std::move(spool));
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
  }

  UploadInfo NewUpload(const TensorSpec& spec, std::string_view request_id = "") {
    return Unwrap(store_->CreateUpload(spec, request_id, kAlice));
  }
  UploadInfo NewGramUpload(const GramSpec& spec) {
    return Unwrap(store_->CreateUpload(spec, "", kAlice));
  }
  absl::StatusOr<int64_t> Write(const std::string& upload, int64_t offset, std::string_view text) {
    return store_->Write(upload, offset, BytesOf(text), Crc(text));
  }
  // A complete weight with these bytes (an even number of them).
  TensorInfo NewTensor(std::string_view text, std::string_view request_id = "") {
    const UploadInfo upload = NewUpload(WeightOf(static_cast<int64_t>(text.size())), request_id);
    EXPECT_THAT(Write(upload.name, 0, text), IsOk());
    auto tensor = store_->Finish(upload.name, Crc(text));
    EXPECT_THAT(tensor, IsOk());
    return tensor.ok() ? *tensor : TensorInfo();
  }
  std::string Read(const std::string& tensor) {
    auto handle = store_->Acquire(tensor);
    EXPECT_THAT(handle, IsOk());
    return handle.ok() ? TextOf((*handle)->bytes()) : std::string();
  }
  size_t SpoolFiles() const {  // but for the lock
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(options_.spool_dir)) {
      const std::string suffix = entry.path().extension();
      if (suffix == ".tensor" || suffix == ".part") ++count;
    }
    return count;
  }

  testing::TempFolder folder_;
  FakeTime time_;
  TensorStoreOptions options_;
  std::unique_ptr<TensorStore> store_;

 private:
  UploadInfo Unwrap(absl::StatusOr<Created> created) {
    EXPECT_THAT(created, IsOk());
    if (!created.ok() || !std::holds_alternative<UploadInfo>(*created)) {
      ADD_FAILURE() << "not an upload";
      return UploadInfo();
    }
    return std::get<UploadInfo>(*created);
  }
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_TENSORS_STORE_FIXTURE_H_
