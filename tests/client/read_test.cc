// Downloads over a fake server: checksums and resume.
#include <gmock/gmock.h>

#include <new>

#include "absl/strings/str_format.h"
#include "tests/client/client_fixture.h"

namespace sparsefw::client {
namespace {

using ::sparsefw::testing::StatusIs;
using ::testing::ElementsAre;
using testing::Error;
using testing::FastOptions;
using testing::ReadFault;

const grpc::Status kBrokenRead(grpc::UNAVAILABLE, "Socket closed");

class ReadTest : public testing::ClientTest {
 protected:
  void SetUp() override {
    ClientTest::SetUp();
    name_ = server_.tensors.Put(WeightSpec(DType::kF16, 100, 51), bytes_);
  }
  static std::string Text(const TensorData& data) {
    return std::string(reinterpret_cast<const char*>(data.bytes.data()), data.bytes.size());
  }

  const std::string bytes_ = RandomBytes(10200, 5);
  std::string name_;
};

TEST_F(ReadTest, ReadsTheWhole) {
  int64_t last = 0;
  const auto data =
      client_->ReadTensor(name_, [&](const TransferProgress& p) { last = p.done_bytes; });
  SPARSEFW_ASSERT_OK(data);
  EXPECT_EQ(Text(*data), bytes_);
  EXPECT_EQ(data->tensor.spec().dims(1), 51);
  EXPECT_EQ(last, 10200);
}

TEST_F(ReadTest, ResumesAtTheLastGoodByte) {
  server_.tensors.read_faults = {
      {2345, false, kBrokenRead}, {2345, false, kBrokenRead}, {9999, false, kBrokenRead}};
  const auto data = client_->ReadTensor(name_);
  SPARSEFW_ASSERT_OK(data);
  EXPECT_EQ(Text(*data), bytes_);
  EXPECT_THAT(server_.tensors.read_offsets, ElementsAre(0, 2345, 2345, 9999));
}

TEST_F(ReadTest, AStreamThatEndsEarlyIsResumed) {
  server_.tensors.read_faults = {{4000, false, grpc::Status::OK}};
  const auto data = client_->ReadTensor(name_);
  SPARSEFW_ASSERT_OK(data);
  EXPECT_EQ(Text(*data), bytes_);
  EXPECT_THAT(server_.tensors.read_offsets, ElementsAre(0, 4000));
}

TEST_F(ReadTest, ADamagedChunkIsReadAgain) {
  server_.tensors.read_faults = {{3456, true, grpc::Status::OK}};
  const auto data = client_->ReadTensor(name_);
  SPARSEFW_ASSERT_OK(data);
  EXPECT_EQ(Text(*data), bytes_);
  EXPECT_THAT(server_.tensors.read_offsets, ElementsAre(0, 3000));
}

TEST_F(ReadTest, DamageThatStaysIsDataLoss) {
  ClientOptions options = FastOptions();
  options.retry.give_up_after = absl::Milliseconds(30);
  Connect(options);
  for (int i = 0; i < 1000; ++i) server_.tensors.read_faults.push_back({0, true, {}});
  EXPECT_THAT(client_->ReadTensor(name_),
              StatusIs(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH", name_, "byte 0"));
}

TEST_F(ReadTest, ErrorsOfTheServerAreNotRetried) {
  server_.tensors.read_faults = {{1000, false, Error(grpc::NOT_FOUND, "gone", "TENSOR_NOT_FOUND")}};
  EXPECT_THAT(client_->ReadTensor(name_),
              StatusIs(absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND", "gone"));
  EXPECT_THAT(client_->ReadTensor("tensors/none"),
              StatusIs(absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND", "tensors/none"));
}

TEST_F(ReadTest, SizesAreCheckedBeforeMemoryIsTaken) {
  const auto refused = [&](std::function<void(v1::Tensor*)> lie, std::string_view what) {
    server_.tensors.describe = std::move(lie);
    EXPECT_THAT(client_->ReadTensor(name_),
                StatusIs(absl::StatusCode::kInternal, "PROTOCOL", what));
  };
  for (const int64_t size : {int64_t{1} << 62, int64_t{-5}, int64_t{200} << 30, int64_t{0}}) {
    refused([size](v1::Tensor* tensor) { tensor->set_byte_size(size); },
            absl::StrFormat("the server says %d", size));
  }
  refused([](v1::Tensor* tensor) { tensor->mutable_spec()->clear_dims(); }, "[]");
  refused([](v1::Tensor* tensor) { tensor->mutable_spec()->set_dims(0, int64_t{1} << 62); },
          "dims");
  refused([](v1::Tensor* tensor) { tensor->mutable_spec()->clear_dtype(); }, "WEIGHT [100, 51]");
  EXPECT_TRUE(server_.tensors.read_offsets.empty());
}

// 2^61 bytes are no more than a promise: nothing is allocated for those that do not come.
TEST_F(ReadTest, MemoryIsTakenForBytesThatCome) {
  ClientOptions options = FastOptions();
  options.retry.give_up_after = absl::Milliseconds(30);
  Connect(options);
  server_.tensors.describe = [](v1::Tensor* tensor) {
    tensor->mutable_spec()->set_dims(0, int64_t{1} << 30);
    tensor->mutable_spec()->set_dims(1, int64_t{1} << 30);
    tensor->set_byte_size(int64_t{1} << 61);
  };
  EXPECT_THAT(client_->ReadTensor(name_), StatusIs(absl::StatusCode::kUnavailable, "PROTOCOL",
                                                   "the stream ended at byte 10200"));
}

TEST_F(ReadTest, AnotherTensorThanTheCallerExpectsIsRefused) {
  const v1::TensorSpec right = WeightSpec(DType::kF16, 100, 51);
  SPARSEFW_EXPECT_OK(client_->ReadTensor(name_, {}, {}, right));
  v1::TensorSpec some;
  some.set_kind(v1::TENSOR_KIND_WEIGHT);
  SPARSEFW_EXPECT_OK(client_->ReadTensor(name_, {}, {}, some));
  server_.tensors.read_offsets.clear();
  v1::TensorSpec kind = right;
  kind.set_kind(v1::TENSOR_KIND_PRUNED_WEIGHT);
  for (const v1::TensorSpec& wrong :
       {WeightSpec(DType::kF16, 51, 100), kind, WeightSpec(DType::kBF16, 100, 51)}) {
    EXPECT_THAT(client_->ReadTensor(name_, {}, {}, wrong),
                StatusIs(absl::StatusCode::kInternal, "PROTOCOL", "must be", "WEIGHT [100, 51]"));
  }
  EXPECT_TRUE(server_.tensors.read_offsets.empty());
}

TEST_F(ReadTest, AChunkOfNoBytesIsNoProgress) {
  server_.tensors.empty_chunks = true;
  EXPECT_THAT(client_->ReadTensor(name_),
              StatusIs(absl::StatusCode::kInternal, "PROTOCOL", "got 0 bytes"));
}

TEST_F(ReadTest, AStreamOnWhichNothingComesIsOpenedAgain) {
  ClientOptions options = FastOptions();
  options.watch_silence = 3 * LongForACall();
  Connect(options);
  server_.tensors.silent_reads = 1;
  SPARSEFW_EXPECT_OK(client_->ReadTensor(name_));
  EXPECT_THAT(server_.tensors.read_offsets, ElementsAre(0, 0));
  options.retry.give_up_after = absl::Milliseconds(10);
  Connect(options);
  server_.tensors.silent_reads = 1000;
  EXPECT_THAT(client_->ReadTensor(name_),
              StatusIs(absl::StatusCode::kUnavailable, "UNREACHABLE", "nothing came of " + name_));
}

// The allocation may fail anywhere under the read; the callback stands for all places.
TEST_F(ReadTest, TooLittleMemoryIsAnErrorThatNamesTheTensor) {
  EXPECT_THAT(client_->ReadTensor(name_, [](const TransferProgress&) { throw std::bad_alloc(); }),
              StatusIs(absl::StatusCode::kResourceExhausted, "CLIENT_MEMORY", name_,
                       "its 10200 bytes must fit"));
  const auto again = client_->ReadTensor(name_);
  SPARSEFW_ASSERT_OK(again);
  EXPECT_EQ(Text(*again), bytes_);
}

TEST_F(ReadTest, StopEndsARead) {
  std::stop_source stop;
  EXPECT_THAT(client_->ReadTensor(
                  name_, [&](const TransferProgress&) { stop.request_stop(); },
                  CallOptions{stop.get_token()}),
              StatusIs(absl::StatusCode::kCancelled, "STOPPED"));
}

}  // namespace
}  // namespace sparsefw::client
