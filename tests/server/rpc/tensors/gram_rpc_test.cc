// AccumulateGram: activations in, a Gram matrix out.
#include <cstring>

#include "gtest/gtest.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {
namespace {

constexpr int64_t kDim = 24;
constexpr int64_t kTokens = 100;

class GramRpcTest : public testing::Test {
 protected:
  std::string MustCreate() {
    grpc::ClientContext context;
    v1::CreateUploadRequest request;
    *request.mutable_gram() = Gram();
    v1::CreateUploadResponse response;
    const grpc::Status status = server_.tensors->CreateUpload(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.upload().name();
  }
  static v1::GramSpec Gram() {
    v1::GramSpec spec;
    spec.set_d_in(kDim);
    spec.set_activation_dtype(v1::DATA_TYPE_F32);
    spec.set_gram_dtype(v1::DATA_TYPE_F64);
    return spec;
  }
  // Tokens [first, last).
  static v1::AccumulateGramRequest Tokens(const std::vector<float>& x, int64_t first,
                                          int64_t last) {
    const v1::Chunk chunk = MakeChunk(BytesOf(x), first * kDim * 4, (last - first) * kDim * 4);
    v1::AccumulateGramRequest request;
    request.set_token_offset(first);
    request.set_data(chunk.data());
    request.set_crc32c(chunk.crc32c());
    return request;
  }
  grpc::Status Send(const std::vector<v1::AccumulateGramRequest>& requests,
                    v1::AccumulateGramResponse* response) {
    grpc::ClientContext context;
    const auto writer = server_.tensors->AccumulateGram(&context, response);
    for (const auto& request : requests) {
      if (!writer->Write(request)) break;
    }
    writer->WritesDone();
    return writer->Finish();
  }
  void ExpectGramOf(const std::vector<float>& x, const std::string& tensor) {
    const std::string bytes = server_.Read(tensor);
    ASSERT_EQ(bytes.size(), kDim * kDim * sizeof(double));
    std::vector<double> gram(kDim * kDim);
    std::memcpy(gram.data(), bytes.data(), bytes.size());
    for (int64_t i = 0; i < kDim; ++i) {
      for (int64_t j = 0; j < kDim; ++j) {
        double want = 0;
        for (int64_t t = 0; t < kTokens; ++t) {
          want += double{x[static_cast<size_t>(t * kDim + i)]} *
                  double{x[static_cast<size_t>(t * kDim + j)]};
        }
        EXPECT_NEAR(gram[static_cast<size_t>(i * kDim + j)], want, 1e-4);
      }
    }
  }

  const std::vector<float> x_ = RandomValues(kTokens * kDim, 3);
  TestServer server_;
};

TEST_F(GramRpcTest, SumsInOneCall) {
  v1::AccumulateGramRequest first = Tokens(x_, 0, 60);
  *first.mutable_spec() = Gram();
  v1::AccumulateGramRequest last = Tokens(x_, 60, kTokens);
  last.set_finish(true);
  v1::AccumulateGramResponse response;
  const grpc::Status status = Send({first, last}, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.committed_tokens(), kTokens);
  EXPECT_EQ(response.gram().spec().token_count(), kTokens);
  ExpectGramOf(x_, response.gram().name());
}

TEST_F(GramRpcTest, NoTokenCountsTwice) {
  const std::string upload = MustCreate();
  v1::AccumulateGramResponse response;
  v1::AccumulateGramRequest request = Tokens(x_, 0, 50);
  request.set_upload(upload);
  ASSERT_TRUE(Send({request}, &response).ok());
  EXPECT_EQ(response.committed_tokens(), 50);

  request = Tokens(x_, 51, 60);
  request.set_upload(upload);
  const grpc::Status gap = Send({request}, &response);
  EXPECT_TRUE(Failed(gap, grpc::FAILED_PRECONDITION, "OFFSET_GAP", "51"));
  EXPECT_EQ(DetailsOf(gap).metadata["committed_tokens"], "50");

  request = Tokens(x_, 30, kTokens);  // overlaps what is there
  request.set_upload(upload);
  request.set_finish(true);
  ASSERT_TRUE(Send({request}, &response).ok());
  ExpectGramOf(x_, response.gram().name());

  // The answer was lost: the same again. More tokens than were summed are not in it.
  const std::string sum = response.gram().name();
  ASSERT_TRUE(Send({request}, &response).ok());
  EXPECT_EQ(response.gram().name(), sum);
  request.set_token_offset(31);
  const grpc::Status more = Send({request}, &response);
  EXPECT_TRUE(Failed(more, grpc::OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE", "tokens"));
  EXPECT_EQ(DetailsOf(more).metadata["committed_tokens"], std::to_string(kTokens));
}

TEST_F(GramRpcTest, NamesTheTokenThatIsNotFinite) {
  std::vector<float> x = x_;
  x[static_cast<size_t>(70 * kDim + 5)] = std::nanf("");
  v1::AccumulateGramRequest first = Tokens(x, 0, 60);
  *first.mutable_spec() = Gram();
  v1::AccumulateGramResponse response;
  const grpc::Status status = Send({first, Tokens(x, 60, kTokens)}, &response);
  EXPECT_TRUE(Failed(status, grpc::INVALID_ARGUMENT, "NON_FINITE", "70"));
  EXPECT_NE(status.error_message().find('5'), std::string::npos);
}

TEST_F(GramRpcTest, RefusesHalfATokenABadChecksumAndTheWrongKindOfUpload) {
  const std::string upload = MustCreate();
  v1::AccumulateGramResponse response;
  v1::AccumulateGramRequest request = Tokens(x_, 0, 2);
  request.set_upload(upload);
  request.set_crc32c(request.crc32c() + 1);
  EXPECT_EQ(Send({request}, &response).error_code(), grpc::DATA_LOSS);
  const v1::Chunk half = MakeChunk(BytesOf(x_), 0, kDim * 4 + 2);
  request.set_data(half.data());
  request.set_crc32c(half.crc32c());
  EXPECT_EQ(DetailsOf(Send({request}, &response)).reason, "PARTIAL_TOKEN");

  grpc::ClientContext context;
  v1::WriteTensorResponse written;
  const auto writer = server_.tensors->WriteTensor(&context, &written);
  v1::WriteTensorRequest write;
  write.set_upload(upload);
  *write.mutable_chunk() = half;
  writer->Write(write);
  writer->WritesDone();
  EXPECT_EQ(DetailsOf(writer->Finish()).reason, "WRONG_UPLOAD_KIND");
}

}  // namespace
}  // namespace sparsefw::server
