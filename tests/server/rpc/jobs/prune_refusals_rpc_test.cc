// What the one-call form refuses, and when.
#include <string>
#include <utility>
#include <vector>

#include "tests/server/rpc/jobs/prune_fixture.h"

namespace sparsefw::server {
namespace {

// A broken stream may look like a half-closed one: a job must never run on the part that came.
TEST_F(PruneRpcTest, RefusesFewerOrMoreTokensThanAnnounced) {
  v1::PruneRequest header = Header();
  header.mutable_header()->clear_weight();
  header.mutable_header()->clear_gram();
  header.mutable_header()->mutable_spec()->set_weight(server_.UploadWeight(kRows, kCols));
  header.mutable_header()->mutable_activations()->set_d_in(kCols);
  header.mutable_header()->mutable_activations()->set_activation_dtype(v1::DATA_TYPE_F32);
  const std::string x = BytesOf(RandomValues(100 * kCols, 9));
  for (const auto& [announced, words] :
       std::vector<std::pair<int64_t, std::string>>{{0, "activation_tokens must be at least 1"},
                                                    {101, "after 100 of 101 tokens"},
                                                    {99, "announced 99 tokens; got 100"}}) {
    header.mutable_header()->set_activation_tokens(announced);
    grpc::ClientContext context;
    const auto stream = server_.jobs->Prune(&context);
    stream->Write(header);
    v1::PruneRequest request;
    *request.mutable_activations() = MakeChunk(x, 0, 100 * kCols * 4);
    stream->Write(request);
    stream->WritesDone();
    v1::PruneResponse response;
    while (stream->Read(&response)) ADD_FAILURE() << response.ShortDebugString();
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_NE(status.error_message().find(words), std::string::npos) << status.error_message();
  }
}

TEST_F(PruneRpcTest, RefusesIncompleteAndDisorderlyStreams) {
  const auto all = static_cast<int64_t>(weight_.size());
  EXPECT_TRUE(Failed(Error({}), grpc::INVALID_ARGUMENT, "STREAM_INCOMPLETE", "before its header"));
  EXPECT_TRUE(Failed(Error({WeightChunk(weight_, 0, 4)}), grpc::INVALID_ARGUMENT, "STREAM_ORDER",
                     "the first message must be a header"));
  EXPECT_TRUE(Failed(Error({Header(), Header()}), grpc::INVALID_ARGUMENT, "STREAM_ORDER",
                     "only the first message"));
  EXPECT_TRUE(Failed(Error({Header(), WeightChunk(weight_, 0, 100)}), grpc::INVALID_ARGUMENT,
                     "STREAM_INCOMPLETE", "after 100 of 2048 bytes of the weight"));
  EXPECT_TRUE(Failed(Error({Header(), WeightChunk(weight_, 0, all)}), grpc::INVALID_ARGUMENT,
                     "STREAM_INCOMPLETE", "after 0 of 4096 bytes of the gram"));
  v1::PruneRequest both = Header();
  both.mutable_header()->mutable_spec()->set_gram("tensors/x");
  EXPECT_TRUE(Failed(Error({both}), grpc::INVALID_ARGUMENT, "SPEC_INVALID", "exactly one of"));
  v1::PruneRequest named = Header();
  named.mutable_header()->clear_gram();
  named.mutable_header()->mutable_spec()->set_gram(server_.UploadGram(kCols));
  EXPECT_TRUE(Failed(Error({named, GramChunk(gram_, 0, 4)}), grpc::INVALID_ARGUMENT, "STREAM_ORDER",
                     "announced no gram"));
  ASSERT_TRUE(server_.server->tensors().DeleteTensor(named.header().spec().gram()).ok());
  EXPECT_TRUE(Failed(Error({named, WeightChunk(weight_, 0, all)}), grpc::FAILED_PRECONDITION,
                     "TENSOR_NOT_FOUND", "gram"));
  ExpectNothingLeft();
}

// Such a tensor may be that of another stream, even of another tenant.
TEST_F(PruneRpcTest, AFailedStreamDeletesNoTensorThatItsHeaderNames) {
  const std::string of_another_stream = WeightOfAnotherStream();
  v1::PruneRequest header = Header();
  header.mutable_header()->clear_weight();
  header.mutable_header()->mutable_spec()->set_weight(of_another_stream);
  EXPECT_TRUE(Failed(Error({header, GramChunk(gram_, 0, 4)}), grpc::INVALID_ARGUMENT,
                     "STREAM_INCOMPLETE", "after 4 of 4096 bytes of the gram"));
  EXPECT_TRUE(Eventually([this] { return server_.server->calls().size() == 0; }));
  EXPECT_TRUE(server_.server->tensors().GetTensor(of_another_stream).ok());
}

TEST_F(PruneRpcTest, AJobThatIsNotCreatedDeletesNoTensorOfAStream) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = Header().header().spec();
  request.mutable_spec()->set_weight(WeightOfAnotherStream());
  request.mutable_spec()->set_gram(server_.UploadGram(kCols));
  request.set_validate_only(true);
  v1::Job job;
  grpc::ClientContext checked, refused;
  EXPECT_TRUE(server_.jobs->CreateJob(&checked, request, &job).ok());
  request.set_validate_only(false);
  request.mutable_spec()->set_gram(server_.UploadGram(kCols - 1));
  EXPECT_TRUE(Failed(server_.jobs->CreateJob(&refused, request, &job), grpc::INVALID_ARGUMENT,
                     "SHAPE_MISMATCH", "gram"));
  EXPECT_TRUE(server_.server->tensors().GetTensor(request.spec().weight()).ok());
}

TEST_F(PruneRpcTest, RefusesBadOptionsBeforeTheTensorsCome) {
  v1::PruneRequest header = Header();
  header.mutable_header()->mutable_spec()->mutable_sparsefw()->set_alpha(2);
  EXPECT_EQ(DetailsOf(Error({header})).reason, "OPTION_INVALID");
  header = Header();
  header.mutable_header()->mutable_spec()->mutable_pattern()->mutable_nm()->set_keep(2);
  header.mutable_header()->mutable_spec()->mutable_pattern()->mutable_nm()->set_group(5);
  EXPECT_EQ(DetailsOf(Error({header})).reason, "PATTERN_INVALID");
  header = Header();
  header.mutable_header()->mutable_weight()->set_kind(v1::TENSOR_KIND_SALIENCY);
  EXPECT_TRUE(Failed(Error({header}), grpc::INVALID_ARGUMENT, "SPEC_INVALID",
                     "header.weight.kind must be WEIGHT; got SALIENCY"));
  ExpectNothingLeft();
}

// Not after gigabytes of both tensors have been sent.
TEST_F(PruneRpcTest, RefusesAGramOfAnotherShapeAtTheHeader) {
  v1::PruneRequest header = Header();
  *header.mutable_header()->mutable_gram() =
      Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, kCols - 1, kCols - 1);
  const grpc::Status status = Error({header});
  EXPECT_TRUE(Failed(status, grpc::INVALID_ARGUMENT, "SHAPE_MISMATCH",
                     "gram must be [32, 32] to fit the weight; got [31, 31]"));
  EXPECT_EQ(DetailsOf(status).metadata.at("field"), "gram");
  header = Header();
  header.mutable_header()->clear_gram();
  header.mutable_header()->mutable_activations()->set_d_in(kCols + 1);
  header.mutable_header()->mutable_activations()->set_activation_dtype(v1::DATA_TYPE_F32);
  header.mutable_header()->set_activation_tokens(10);
  EXPECT_EQ(DetailsOf(Error({header})).reason, "SHAPE_MISMATCH");
  ExpectNothingLeft();
}

TEST_F(PruneRpcTest, RefusesADeviceAndANamedTensorThatAreNotThereAtTheHeader) {
  v1::PruneRequest header = Header();
  header.mutable_header()->mutable_spec()->set_device("cuda:99");
  EXPECT_EQ(DetailsOf(Error({header})).reason, "DEVICE_UNAVAILABLE");
  header = Header();
  header.mutable_header()->clear_gram();
  header.mutable_header()->mutable_spec()->set_gram("tensors/none");
  EXPECT_EQ(DetailsOf(Error({header})).reason, "TENSOR_NOT_FOUND");
  ExpectNothingLeft();
}

TEST_F(PruneRpcTest, ABadChecksumAndABadValueEndIt) {
  v1::PruneRequest broken = WeightChunk(weight_, 0, 100);
  broken.mutable_weight()->set_crc32c(1);
  EXPECT_EQ(Error({Header(), broken}).error_code(), grpc::DATA_LOSS);
  std::vector<float> values = RandomValues(kRows * kCols, 1);
  values[5] = std::nanf("");
  const std::string nan = BytesOf(values);
  EXPECT_TRUE(Failed(Error({Header(), WeightChunk(nan, 0, static_cast<int64_t>(nan.size())),
                            GramChunk(gram_, 0, static_cast<int64_t>(gram_.size()))}),
                     grpc::INVALID_ARGUMENT, "NON_FINITE", "weight"));
  ExpectNothingLeft();
}

}  // namespace
}  // namespace sparsefw::server
