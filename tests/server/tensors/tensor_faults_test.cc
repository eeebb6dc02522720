// The store when the disk or the memory fails under it.
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <new>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/tensors/faulty_spool.h"
#include "tests/server/tensors/store_fixture.h"
#include "tests/server/tensors/sum_backend.h"

namespace sparsefw::server {
namespace {

class TensorFaultsTest : public StoreFixture {
 protected:
  void SetUp() override {
    auto spool = OpenSpoolFolder(options_.spool_dir);
    ASSERT_THAT(spool, IsOk());
    OpenStoreOver(std::make_shared<FaultySpool>(*std::move(spool), faults_));
  }
  const std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
};

TEST_F(TensorFaultsTest, FullDiskKeepsTheLastGoodByte) {
  const UploadInfo upload = NewUpload(WeightOf(10));
  ASSERT_THAT(Write(upload.name, 0, "abc"), IsOk());
  faults_->FailWritesAfter(2, DiskFull());  // in the middle of the next chunk
  const auto full = Write(upload.name, 3, "defgh");
  EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
  EXPECT_EQ(ReasonMetadataOf(full.status())["committed_size"], "3");
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const UploadInfo info, store_->GetUpload(upload.name));
  EXPECT_EQ(info.committed_size, 3);
  EXPECT_EQ(info.committed_crc32c, Crc("abc"));
  EXPECT_EQ(store_->usage().used_bytes, 10);

  faults_->FailWritesAfter(Faults::kNever, absl::OkStatus());
  EXPECT_EQ(*Write(upload.name, 3, "defghij"), 10);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor,
                                store_->Finish(upload.name, Crc("abcdefghij")));
  EXPECT_EQ(Read(tensor.name), "abcdefghij");
}

TEST_F(TensorFaultsTest, BrokenDiskIsInternal) {
  const UploadInfo upload = NewUpload(WeightOf(4));
  faults_->FailWritesAfter(0, DiskBroken());
  const auto broken = Write(upload.name, 0, "abcd");
  EXPECT_THAT(broken, StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED"));
  EXPECT_EQ(ReasonMetadataOf(broken.status())["committed_size"], "0");
}

TEST_F(TensorFaultsTest, FailedCreationLeavesNothing) {
  faults_->FailCreate(DiskFull());
  EXPECT_THAT(store_->CreateUpload(WeightOf(10), "r", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
  EXPECT_THAT(store_->CreateUpload(GramSpec{4, DType::kF32, DType::kF32}, "g", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
  EXPECT_EQ(store_->usage().uploads, 0);
  EXPECT_EQ(store_->usage().used_bytes, 0);
  faults_->FailCreate(absl::OkStatus());
  SPARSEFW_EXPECT_OK(store_->CreateUpload(WeightOf(12), "r", {}));
}

TEST_F(TensorFaultsTest, FailedPutLeavesNothing) {
  for (const bool in_create : {true, false}) {
    faults_->FailCreate(in_create ? DiskFull() : absl::OkStatus());
    faults_->FailWritesAfter(1, DiskFull());
    EXPECT_THAT(store_->Put(WeightOf(4), BytesOf("abcd"), {}, absl::InfiniteFuture()),
                StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
    EXPECT_EQ(store_->usage().used_bytes, 0);
    EXPECT_EQ(store_->usage().tensors, 0);
    EXPECT_EQ(SpoolFiles(), 0U);
  }
}

TEST_F(TensorFaultsTest, FailedAcquireHoldsNothing) {
  const TensorInfo tensor = NewTensor("abcd");
  faults_->FailMap(DiskBroken());
  EXPECT_THAT(store_->Acquire(tensor.name), StatusIs(absl::StatusCode::kInternal, "SPOOL_FAILED"));
  EXPECT_EQ(store_->GetTensor(tensor.name)->reference_count, 0);
  faults_->FailMap(absl::OkStatus());
  EXPECT_EQ(Read(tensor.name), "abcd");
  SPARSEFW_EXPECT_OK(store_->DeleteTensor(tensor.name));
}

TEST_F(TensorFaultsTest, FailedGramResultCanBeFinishedLater) {
  const std::vector<float> token = {1, 2};
  const auto bytes = std::as_bytes(std::span(token));
  const UploadInfo upload = NewGramUpload({2, DType::kF32, DType::kF32});
  ASSERT_THAT(store_->Accumulate(upload.name, 0, bytes, Crc32c(bytes)), IsOk());
  faults_->FailWritesAfter(3, DiskFull());
  const auto full = store_->Finish(upload.name, {});
  EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
  EXPECT_EQ(ReasonMetadataOf(full.status())["committed_tokens"], "1");
  faults_->FailWritesAfter(Faults::kNever, absl::OkStatus());
  ASSERT_THAT(store_->Accumulate(upload.name, 1, bytes, Crc32c(bytes)), IsOk());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto handle, store_->Acquire(tensor.name));
  EXPECT_EQ(handle->matrix().row<float>(1)[1], 8.0F) << "both tokens";
}

// Memory that runs out in every place where a Gram accumulation takes some.
struct ExhaustedAt {
  bool create = false;
  bool create_throws = false;
  bool add = false;
  bool snapshot = false;
};

class ExhaustedAccumulator final : public GramAccumulator {
 public:
  explicit ExhaustedAccumulator(const ExhaustedAt& at) : at_(at) {}
  absl::Status Add(ConstMatrixView chunk) override {
    if (at_.add) throw std::bad_alloc();
    tokens_ += chunk.rows();
    return absl::OkStatus();
  }
  absl::Status AddGram(ConstMatrixView, int64_t) override {
    return absl::UnimplementedError("not used here");
  }
  int64_t d_in() const override { return 2; }
  int64_t token_count() const override { return tokens_; }
  absl::Status SaveState(GramStateSink) override { return absl::UnimplementedError("not used"); }
  absl::Status RestoreState(GramStateSource) override {
    return absl::UnimplementedError("not used");
  }
  absl::Status CopyRows(int64_t, int64_t count, double* rows) override {
    if (at_.snapshot) throw std::bad_alloc();
    std::fill_n(rows, 2 * count, 0.0);
    return absl::OkStatus();
  }

 private:
  const ExhaustedAt& at_;
  int64_t tokens_ = 0;
};

class ExhaustedBackend final : public SumBackend {
 public:
  absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(int64_t,
                                                                         int) const override {
    if (at.create_throws) throw std::bad_alloc();
    if (at.create) return WithReason(absl::ResourceExhaustedError("no memory"), "OUT_OF_MEMORY");
    return std::make_unique<ExhaustedAccumulator>(at);
  }

  ExhaustedAt at;
};

TEST_F(TensorFaultsTest, ExhaustedMemoryIsAStatus) {
  ExhaustedBackend backend;
  options_.gram_backend = &backend;
  store_.reset();
  OpenStore();
  const GramSpec spec = {2, DType::kF32, DType::kF32};

  backend.at = {.create = true};
  EXPECT_THAT(store_->CreateUpload(spec, "", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY"));
  backend.at = {.create_throws = true};
  EXPECT_THAT(store_->CreateUpload(spec, "", {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "HOST_MEMORY"));
  EXPECT_EQ(store_->usage().used_bytes, 0);
  EXPECT_EQ(SpoolFiles(), 0U);

  backend.at = {};
  const UploadInfo upload = NewGramUpload(spec);
  const auto data = BytesOf("abcdefgh");
  backend.at = {.add = true};
  const auto add = store_->Accumulate(upload.name, 0, data, Crc32c(data));
  EXPECT_THAT(add, StatusIs(absl::StatusCode::kResourceExhausted, "HOST_MEMORY"));
  EXPECT_EQ(ReasonMetadataOf(add.status())["committed_tokens"], "0");
  EXPECT_EQ(ReasonMetadataOf(add.status())["retry_delay_ms"], "1000");
  backend.at = {.snapshot = true};
  EXPECT_EQ(*store_->Accumulate(upload.name, 0, data, Crc32c(data)), 1);
  EXPECT_THAT(store_->Finish(upload.name, {}),
              StatusIs(absl::StatusCode::kResourceExhausted, "HOST_MEMORY"));
  backend.at = {};
  SPARSEFW_EXPECT_OK(store_->Finish(upload.name, {}));
  store_.reset();  // before the backend
}

// The limit on file sizes, which the kernel enforces like a full disk. The
// server ignores SIGXFSZ as this test does.
TEST_F(TensorFaultsTest, FileSizeLimitIsSpoolFull) {
  void (*const handler)(int) = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit = {4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto refused = store_->CreateUpload(WeightOf(8192), "", {});
  const auto accepted = store_->CreateUpload(WeightOf(4096), "", {});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "SPOOL_FULL"));
  SPARSEFW_EXPECT_OK(accepted);
}

}  // namespace
}  // namespace sparsefw::server
