// The promises of TensorService, over a real socket.
#include <random>

#include "gtest/gtest.h"
#include "sparsefw/crc32c.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {
namespace {

constexpr int64_t kRows = 512;
constexpr int64_t kCols = 1024;

class TensorRpcTest : public testing::Test {
 protected:
  v1::CreateUploadResponse MustCreate(const v1::CreateUploadRequest& request) {
    v1::CreateUploadResponse response;
    const grpc::Status status = Create(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  grpc::Status Create(const v1::CreateUploadRequest& request, v1::CreateUploadResponse* response) {
    grpc::ClientContext context;
    return server_.tensors->CreateUpload(&context, request, response);
  }
  static v1::CreateUploadRequest WeightRequest(const std::string& id = "") {
    v1::CreateUploadRequest request;
    *request.mutable_tensor() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, kRows, kCols);
    request.set_request_id(id);
    return request;
  }
  // Sends one chunk and closes the stream.
  grpc::Status Send(const std::string& upload, const v1::Chunk& chunk, bool finish,
                    v1::WriteTensorResponse* response) {
    grpc::ClientContext context;
    const auto writer = server_.tensors->WriteTensor(&context, response);
    v1::WriteTensorRequest request;
    request.set_upload(upload);
    *request.mutable_chunk() = chunk;
    request.set_finish(finish);
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  }
  // The whole weight in chunks of 1 MiB, the last of which finishes the upload.
  grpc::Status SendAll(const std::string& upload, const std::string& bytes,
                       v1::WriteTensorResponse* response) {
    constexpr int64_t kChunk = 1 << 20;
    grpc::ClientContext context;
    const auto writer = server_.tensors->WriteTensor(&context, response);
    v1::WriteTensorRequest request;
    request.set_upload(upload);
    for (int64_t offset = 0; offset < kRows * kCols * 4; offset += kChunk) {
      *request.mutable_chunk() = MakeChunk(bytes, offset, kChunk);
      request.set_finish(offset + kChunk == kRows * kCols * 4);
      if (!writer->Write(request)) break;
    }
    writer->WritesDone();
    return writer->Finish();
  }
  v1::Upload GetUpload(const std::string& name) {
    grpc::ClientContext context;
    v1::GetUploadRequest request;
    request.set_name(name);
    v1::Upload upload;
    const grpc::Status status = server_.tensors->GetUpload(&context, request, &upload);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return upload;
  }
  grpc::Status Delete(const std::string& tensor) {
    grpc::ClientContext context;
    v1::DeleteTensorRequest request;
    request.set_name(tensor);
    google::protobuf::Empty empty;
    return server_.tensors->DeleteTensor(&context, request, &empty);
  }
  static std::string WeightBytes() { return BytesOf(RandomValues(kRows * kCols, 7)); }

  TestServer server_;
};

TEST_F(TensorRpcTest, OneCallUploadComesBackByteForByte) {
  const std::string bytes = WeightBytes();
  v1::Tensor tensor;
  const grpc::Status status = server_.TryUpload(
      Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, kRows, kCols), bytes, &tensor);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(tensor.byte_size(), kRows * kCols * 4);
  EXPECT_EQ(tensor.crc32c(), Crc32c(std::as_bytes(std::span(bytes))));
  EXPECT_EQ(server_.Read(tensor.name()), bytes);
}

TEST_F(TensorRpcTest, ABrokenStreamResumesWhereItBroke) {
  const std::string bytes = WeightBytes();
  const auto size = static_cast<int64_t>(bytes.size());
  std::mt19937 random(20261121);
  for (int round = 0; round < 3; ++round) {
    const std::string upload = MustCreate(WeightRequest()).upload().name();
    const int64_t cut = std::uniform_int_distribution<int64_t>(1, size - 1)(random);
    SCOPED_TRACE(testing::Message() << "cut at byte " << cut);
    {
      grpc::ClientContext context;
      v1::WriteTensorResponse response;
      const auto writer = server_.tensors->WriteTensor(&context, &response);
      v1::WriteTensorRequest request;
      request.set_upload(upload);
      for (int64_t offset = 0; offset < cut; offset += 300'000) {
        *request.mutable_chunk() =
            MakeChunk(bytes, offset, std::min<int64_t>(300'000, cut - offset));
        if (!writer->Write(request)) break;
        request.clear_upload();
      }
      context.TryCancel();
      EXPECT_EQ(writer->Finish().error_code(), grpc::CANCELLED);
    }
    // Whatever was committed by now, what is below is skipped and what follows is taken.
    const int64_t committed = GetUpload(upload).committed_size();
    EXPECT_LE(committed, cut);
    grpc::ClientContext context;
    v1::WriteTensorResponse response;
    const auto writer = server_.tensors->WriteTensor(&context, &response);
    v1::WriteTensorRequest request;
    request.set_upload(upload);
    for (int64_t offset = committed; offset < size; offset += 500'000) {
      *request.mutable_chunk() =
          MakeChunk(bytes, offset, std::min<int64_t>(500'000, size - offset));
      request.set_finish(offset + 500'000 >= size);
      ASSERT_TRUE(writer->Write(request));
      request.clear_upload();
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.committed_size(), size);
    EXPECT_EQ(server_.Read(response.tensor().name()), bytes);
    ASSERT_TRUE(Delete(response.tensor().name()).ok());
  }
}

TEST_F(TensorRpcTest, AHalfClosedStreamKeepsWhatItBrought) {
  const std::string bytes = WeightBytes();
  const std::string upload = MustCreate(WeightRequest()).upload().name();
  v1::WriteTensorResponse response;
  ASSERT_TRUE(Send(upload, MakeChunk(bytes, 0, 1000), false, &response).ok());
  EXPECT_EQ(response.committed_size(), 1000);
  EXPECT_FALSE(response.has_tensor());
  EXPECT_EQ(GetUpload(upload).committed_size(), 1000);
  EXPECT_EQ(GetUpload(upload).committed_crc32c(),
            Crc32c(std::as_bytes(std::span(bytes)).first(1000)));
}

TEST_F(TensorRpcTest, RepeatedBytesAreSkippedAndAGapSaysWhereToResume) {
  const std::string bytes = WeightBytes();
  const std::string upload = MustCreate(WeightRequest()).upload().name();
  v1::WriteTensorResponse response;
  ASSERT_TRUE(Send(upload, MakeChunk(bytes, 0, 1000), false, &response).ok());
  ASSERT_TRUE(Send(upload, MakeChunk(bytes, 500, 1000), false, &response).ok());
  EXPECT_EQ(response.committed_size(), 1500);
  const grpc::Status gap = Send(upload, MakeChunk(bytes, 1501, 10), false, &response);
  EXPECT_TRUE(Failed(gap, grpc::FAILED_PRECONDITION, "OFFSET_GAP", "1501"));
  EXPECT_EQ(DetailsOf(gap).metadata["committed_size"], "1500");
}

TEST_F(TensorRpcTest, ABadChecksumLeavesTheLastGoodByte) {
  const std::string bytes = WeightBytes();
  const std::string upload = MustCreate(WeightRequest()).upload().name();
  v1::WriteTensorResponse response;
  ASSERT_TRUE(Send(upload, MakeChunk(bytes, 0, 1000), false, &response).ok());
  v1::Chunk broken = MakeChunk(bytes, 1000, 1000);
  broken.set_crc32c(broken.crc32c() ^ 1U);
  const grpc::Status status = Send(upload, broken, false, &response);
  EXPECT_EQ(status.error_code(), grpc::DATA_LOSS);
  EXPECT_EQ(DetailsOf(status).reason, "CHECKSUM_MISMATCH");
  EXPECT_EQ(DetailsOf(status).metadata["committed_size"], "1000");
  EXPECT_EQ(GetUpload(upload).committed_size(), 1000);
}

TEST_F(TensorRpcTest, FinishingTooEarlyOrWithAWrongTotalIsRefused) {
  const std::string bytes = WeightBytes();
  const std::string upload = MustCreate(WeightRequest()).upload().name();
  v1::WriteTensorResponse response;
  const grpc::Status early = Send(upload, MakeChunk(bytes, 0, 1000), true, &response);
  EXPECT_EQ(early.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(DetailsOf(early).reason, "INCOMPLETE");

  grpc::ClientContext context;
  const auto writer = server_.tensors->WriteTensor(&context, &response);
  v1::WriteTensorRequest request;
  request.set_upload(upload);
  *request.mutable_chunk() = MakeChunk(bytes, 1000, 2'000'000);
  writer->Write(request);
  request.clear_upload();
  *request.mutable_chunk() = MakeChunk(bytes, 2'001'000, static_cast<int64_t>(bytes.size()));
  request.set_finish(true);
  request.set_total_crc32c(12345);
  writer->Write(request);
  writer->WritesDone();
  const grpc::Status wrong = writer->Finish();
  EXPECT_EQ(wrong.error_code(), grpc::DATA_LOSS) << wrong.error_message();
  EXPECT_EQ(DetailsOf(wrong).reason, "CHECKSUM_MISMATCH");
}

TEST_F(TensorRpcTest, CreateUploadIsIdempotent) {
  const std::string bytes = WeightBytes();
  const v1::CreateUploadRequest request = WeightRequest("id-1");
  const std::string upload = MustCreate(request).upload().name();
  EXPECT_EQ(MustCreate(request).upload().name(), upload);

  v1::CreateUploadRequest other = request;
  other.mutable_tensor()->set_dims(0, 3);
  v1::CreateUploadResponse response;
  EXPECT_TRUE(
      Failed(Create(other, &response), grpc::INVALID_ARGUMENT, "REQUEST_ID_REUSED", "id-1"));

  v1::WriteTensorResponse written;
  ASSERT_TRUE(SendAll(upload, bytes, &written).ok());
  EXPECT_EQ(MustCreate(request).tensor().name(), written.tensor().name());

  // The answer to the last stream was lost: the client sends again and gets the tensor.
  v1::WriteTensorResponse again;
  ASSERT_TRUE(Send(upload, MakeChunk(bytes, 0, 1000), false, &again).ok());
  EXPECT_EQ(again.tensor().name(), written.tensor().name());
  ASSERT_TRUE(Send(upload, MakeChunk(bytes, 1000, 1000), true, &again).ok());
  EXPECT_EQ(again.tensor().name(), written.tensor().name());
  // With other bytes it is told so, whether it finishes or not.
  std::string others = bytes;
  others[500] ^= 1;
  for (const bool finish : {false, true}) {
    const grpc::Status status = Send(upload, MakeChunk(others, 0, 1000), finish, &again);
    EXPECT_TRUE(Failed(status, grpc::DATA_LOSS, "BYTES_DIFFER", "byte 500"));
    EXPECT_EQ(DetailsOf(status).metadata["committed_size"], std::to_string(kRows * kCols * 4));
  }
  EXPECT_EQ(server_.Read(written.tensor().name()), bytes);
}

TEST_F(TensorRpcTest, EveryChunkForAFinishedUploadIsCompared) {
  const std::string bytes = WeightBytes();
  const std::string upload = MustCreate(WeightRequest()).upload().name();
  v1::WriteTensorResponse response;
  ASSERT_TRUE(SendAll(upload, bytes, &response).ok());
  ASSERT_TRUE(SendAll(upload, bytes, &response).ok());
  std::string others = bytes;
  others.back() ^= 1;
  EXPECT_TRUE(Failed(SendAll(upload, others, &response), grpc::DATA_LOSS, "BYTES_DIFFER",
                     "byte " + std::to_string(bytes.size() - 1)));
}

TEST_F(TensorRpcTest, ThirdPartiesSeeErrorsOfTheStreamItself) {
  v1::WriteTensorResponse response;
  {
    grpc::ClientContext context;
    const auto writer = server_.tensors->WriteTensor(&context, &response);
    writer->WritesDone();
    EXPECT_TRUE(
        Failed(writer->Finish(), grpc::INVALID_ARGUMENT, "TARGET_INVALID", "first message"));
  }
  {
    grpc::ClientContext context;
    const auto writer = server_.tensors->WriteTensor(&context, &response);
    writer->Write(v1::WriteTensorRequest());
    writer->WritesDone();
    EXPECT_TRUE(Failed(writer->Finish(), grpc::INVALID_ARGUMENT, "TARGET_INVALID", "got neither"));
  }
  EXPECT_EQ(DetailsOf(Send("uploads/none", MakeChunk("abc", 0, 3), true, &response)).reason,
            "UPLOAD_NOT_FOUND");
  {
    // A one-call upload that ends early leaves nothing behind.
    grpc::ClientContext context;
    const auto writer = server_.tensors->WriteTensor(&context, &response);
    v1::WriteTensorRequest request;
    *request.mutable_spec() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 4, 4);
    *request.mutable_chunk() = MakeChunk(std::string(16, 'x'), 0, 16);
    writer->Write(request);
    writer->WritesDone();
    EXPECT_TRUE(Failed(writer->Finish(), grpc::FAILED_PRECONDITION, "INCOMPLETE", "16 bytes"));
    EXPECT_TRUE(Eventually([this] {
      const TensorStoreUsage usage = server_.server->tensors().usage();
      return usage.uploads == 0 && usage.used_bytes == 0;
    }));
  }
}

TEST_F(TensorRpcTest, MessagesBeyondTheLimitAreRefusedByTheTransport) {
  v1::WriteTensorResponse response;
  const std::string upload = MustCreate(WeightRequest()).upload().name();
  const std::string bytes(3 << 20, 'x');
  EXPECT_EQ(Send(upload, MakeChunk(bytes, 0, 3 << 20), false, &response).error_code(),
            grpc::RESOURCE_EXHAUSTED);
  // Exactly 2 MiB pass, framing and all.
  v1::CreateUploadRequest request;
  *request.mutable_tensor() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 1024, 1024);
  const std::string large = MustCreate(request).upload().name();
  const grpc::Status fits = Send(large, MakeChunk(bytes, 0, 2 << 20), false, &response);
  EXPECT_TRUE(fits.ok()) << fits.error_message();
}

TEST_F(TensorRpcTest, RefusesBadSpecsBeforeAByteIsSent) {
  v1::CreateUploadResponse response;
  v1::CreateUploadRequest request;
  EXPECT_TRUE(
      Failed(Create(request, &response), grpc::INVALID_ARGUMENT, "SPEC_INVALID", "neither"));
  *request.mutable_tensor() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F64, 2, 2);
  EXPECT_EQ(DetailsOf(Create(request, &response)).reason, "SPEC_INVALID");
  *request.mutable_tensor() = Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, 2, 3);
  EXPECT_EQ(DetailsOf(Create(request, &response)).reason, "SPEC_INVALID");
  *request.mutable_tensor() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 0, 3);
  EXPECT_EQ(Create(request, &response).error_code(), grpc::INVALID_ARGUMENT);
  // Over 4 GiB: the arithmetic holds, the budget of this server does not.
  *request.mutable_tensor() =
      Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, int64_t{1} << 20, 1 << 14);
  const grpc::Status large = Create(request, &response);
  EXPECT_EQ(large.error_code(), grpc::RESOURCE_EXHAUSTED) << large.error_message();
  EXPECT_EQ(DetailsOf(large).reason, "TENSOR_TOO_LARGE");
  request = WeightRequest(std::string(129, 'i'));
  EXPECT_TRUE(Failed(Create(request, &response), grpc::INVALID_ARGUMENT, "REQUEST_ID_INVALID",
                     "request_id must be at most 128 bytes; got 129"));
  request = WeightRequest("two\nlines");
  EXPECT_TRUE(Failed(Create(request, &response), grpc::INVALID_ARGUMENT, "REQUEST_ID_INVALID",
                     "got 0x0a at byte 3"));
  request = WeightRequest("");
  request.set_owner(std::string(257, 'o'));
  EXPECT_TRUE(Failed(Create(request, &response), grpc::INVALID_ARGUMENT, "OWNER_INVALID",
                     "owner must be at most 256 bytes; got 257"));
  request.set_owner(std::string(256, 'o'));
  EXPECT_TRUE(Create(request, &response).ok());
}

TEST_F(TensorRpcTest, ReadsRanges) {
  const std::string bytes = WeightBytes();
  const std::string name =
      server_.Upload(Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, kRows, kCols), bytes);
  const auto read = [this, &name](int64_t offset, std::optional<int64_t> limit, std::string* data) {
    grpc::ClientContext context;
    v1::ReadTensorRequest request;
    request.set_name(name);
    request.set_offset(offset);
    if (limit) request.set_limit(*limit);
    const auto reader = server_.tensors->ReadTensor(&context, request);
    v1::ReadTensorResponse response;
    data->clear();
    while (reader->Read(&response)) *data += response.chunk().data();
    return reader->Finish();
  };
  std::string data;
  ASSERT_TRUE(read(5, 1'500'000, &data).ok());
  EXPECT_EQ(data, bytes.substr(5, 1'500'000));
  ASSERT_TRUE(read(kRows * kCols * 4 - 3, 100, &data).ok());
  EXPECT_EQ(data, bytes.substr(bytes.size() - 3));
  ASSERT_TRUE(read(5, std::nullopt, &data).ok());
  EXPECT_EQ(data, bytes.substr(5));
  ASSERT_TRUE(read(5, 0, &data).ok());
  EXPECT_TRUE(data.empty()) << "a limit of 0 is one";
  ASSERT_TRUE(read(kRows * kCols * 4, std::nullopt, &data).ok());
  EXPECT_TRUE(data.empty());
  const grpc::Status beyond = read(kRows * kCols * 4 + 1, 0, &data);
  EXPECT_TRUE(Failed(beyond, grpc::OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE", "2097152 bytes"));
  EXPECT_EQ(read(-1, 0, &data).error_code(), grpc::INVALID_ARGUMENT);
  ASSERT_TRUE(Delete(name).ok());
  EXPECT_EQ(DetailsOf(read(0, 0, &data)).reason, "TENSOR_NOT_FOUND");
}

TEST_F(TensorRpcTest, DeletedUploadsAndTensorsAreGone) {
  const std::string upload = MustCreate(WeightRequest()).upload().name();
  v1::DeleteUploadRequest request;
  request.set_name(upload);
  google::protobuf::Empty empty;
  grpc::ClientContext first;
  ASSERT_TRUE(server_.tensors->DeleteUpload(&first, request, &empty).ok());
  grpc::ClientContext second;
  v1::GetUploadRequest get;
  get.set_name(upload);
  v1::Upload gone;
  EXPECT_TRUE(Failed(server_.tensors->GetUpload(&second, get, &gone), grpc::NOT_FOUND,
                     "UPLOAD_NOT_FOUND", upload));
  EXPECT_EQ(Delete("tensors/none").error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(DetailsOf(Delete("")).reason, "NAME_REQUIRED");
}

}  // namespace
}  // namespace sparsefw::server
