// Downloads over a fake server: checksums and resume.
#include <gmock/gmock.h>

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

TEST_F(ReadTest, StopEndsARead) {
  std::stop_source stop;
  EXPECT_THAT(client_->ReadTensor(
                  name_, [&](const TransferProgress&) { stop.request_stop(); },
                  CallOptions{stop.get_token()}),
              StatusIs(absl::StatusCode::kCancelled, "STOPPED"));
}

}  // namespace
}  // namespace sparsefw::client
