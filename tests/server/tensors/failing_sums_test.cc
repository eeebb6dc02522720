// Gram accumulations on a device that fails once.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/tensors/durable_fixture.h"
#include "tests/server/tensors/sum_backend.h"

namespace sparsefw::server {
namespace {

enum class Work { kNone, kAdd, kSaveState, kCopyRows };

// A sum of the CPU that is of no use after a failure, as those of a device are.
class FailingSum final : public GramAccumulator {
 public:
  FailingSum(std::unique_ptr<GramAccumulator> sum, Work* fails)
      : sum_(std::move(sum)), fails_(*fails) {}

  absl::Status Add(ConstMatrixView chunk) override {
    if (absl::Status status = Begin(Work::kAdd); !status.ok()) return status;
    return sum_->Add(chunk);
  }
  absl::Status AddGram(ConstMatrixView gram, int64_t tokens) override {
    return sum_->AddGram(gram, tokens);
  }
  int64_t d_in() const override { return sum_->d_in(); }
  int64_t token_count() const override { return sum_->token_count(); }
  absl::Status CopyRows(int64_t first, int64_t count, double* rows) override {
    if (absl::Status status = Begin(Work::kCopyRows); !status.ok()) return status;
    return sum_->CopyRows(first, count, rows);
  }
  absl::Status SaveState(GramStateSink sink) override {
    if (absl::Status status = Begin(Work::kSaveState); !status.ok()) return status;
    return sum_->SaveState(sink);
  }
  absl::Status RestoreState(GramStateSource source) override { return sum_->RestoreState(source); }

 private:
  absl::Status Begin(Work work) {
    if (fails_ == work) {
      fails_ = Work::kNone;
      failed_ = WithReason(absl::InternalError("an illegal address"), "DEVICE_LOST");
    }
    return failed_;
  }

  const std::unique_ptr<GramAccumulator> sum_;
  Work& fails_;
  absl::Status failed_;
};

class FailingBackend final : public SumBackend {
 public:
  absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(
      int64_t d_in, int threads) const override {
    auto sum = SumBackend::CreateGramAccumulator(d_in, threads);
    if (!sum.ok()) return sum;
    return std::make_unique<FailingSum>(*std::move(sum), &fails);
  }

  mutable Work fails = Work::kNone;  // once
};

class FailingSumsTest : public DurableFixture {
 protected:
  static constexpr int64_t kDIn = 9;
  static constexpr int64_t kTokens = 3000;  // beyond two blocks
  static constexpr int64_t kCommitted = 1300;

  void SetUp() override {
    options_.gram_backend = &backend_;
    std::mt19937_64 random(7);
    std::normal_distribution<float> normal;
    for (float& value : values_) value = normal(random);
    DurableFixture::SetUp();
  }
  absl::StatusOr<int64_t> Accumulate(const std::string& upload, int64_t first, int64_t end) {
    const auto bytes = std::as_bytes(std::span(values_).subspan(
        static_cast<size_t>(first * kDIn), static_cast<size_t>((end - first) * kDIn)));
    return store_->Accumulate(upload, first, bytes, Crc32c(bytes));
  }

  FailingBackend backend_;
  std::vector<float> values_ = std::vector<float>(kTokens * kDIn);
};

TEST_F(FailingSumsTest, AreResumedFromWhatIsCommittedWithTheSameBits) {
  const GramSpec spec = {kDIn, DType::kF32, DType::kF64};
  const UploadInfo whole = NewGramUpload(spec);
  ASSERT_THAT(Accumulate(whole.name, 0, kTokens), IsOk());
  const std::string expected = Read(store_->Finish(whole.name, {})->name);
  for (const bool saved : {true, false}) {
    const int64_t committed = saved ? kCommitted : 0;
    for (const Work work : {Work::kAdd, Work::kSaveState, Work::kCopyRows}) {
      SCOPED_TRACE(static_cast<int>(work));
      const UploadInfo upload = NewGramUpload(spec);
      ASSERT_THAT(Accumulate(upload.name, 0, kCommitted), IsOk());
      if (saved) {
        SPARSEFW_ASSERT_OK(store_->Commit(upload.name));
      }
      if (work != Work::kAdd) {
        ASSERT_THAT(Accumulate(upload.name, kCommitted, kTokens), IsOk());
      }
      backend_.fails = work;
      absl::Status failed = Accumulate(upload.name, kCommitted, kTokens).status();
      if (work == Work::kSaveState) failed = store_->Commit(upload.name).status();
      if (work == Work::kCopyRows) failed = store_->Finish(upload.name, {}).status();
      EXPECT_THAT(failed, StatusIs(absl::StatusCode::kInternal, "DEVICE_LOST"));
      EXPECT_EQ(ReasonMetadataOf(failed)["committed_tokens"], std::to_string(committed));
      ASSERT_THAT(Accumulate(upload.name, committed, kTokens), IsOk());
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const TensorInfo tensor, store_->Finish(upload.name, {}));
      EXPECT_EQ(tensor.spec.token_count, kTokens);
      EXPECT_TRUE(Read(tensor.name) == expected);
    }
  }
}

// The sum of a stream is nowhere else, and its client does not send it again.
TEST_F(FailingSumsTest, OfAStreamDoNotGoOn) {
  const auto created = store_->CreateUpload(GramSpec{kDIn, DType::kF32, DType::kF64}, "", kAlice,
                                            UploadLife::kStream);
  const std::string name = std::get<UploadInfo>(*created).name;
  ASSERT_THAT(Accumulate(name, 0, kCommitted), IsOk());
  SPARSEFW_ASSERT_OK(store_->Commit(name));
  backend_.fails = Work::kAdd;
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Accumulate(name, kCommitted, kTokens),
                StatusIs(absl::StatusCode::kInternal, "DEVICE_LOST"));
  }
}

}  // namespace
}  // namespace sparsefw::server
