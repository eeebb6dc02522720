// The one-call form.
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/mask.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {
namespace {

constexpr int64_t kRows = 16;
constexpr int64_t kCols = 32;

class PruneRpcTest : public testing::Test {
 protected:
  using Stream = grpc::ClientReaderWriter<v1::PruneRequest, v1::PruneResponse>;

  static v1::PruneRequest Header(int64_t iterations = 50) {
    v1::PruneRequest request;
    v1::PruneHeader& header = *request.mutable_header();
    header.mutable_spec()->mutable_pattern()->mutable_per_row()->set_sparsity(0.5);
    header.mutable_spec()->mutable_sparsefw()->set_iterations(iterations);
    header.mutable_spec()->mutable_sparsefw()->set_report_every(10);
    *header.mutable_weight() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, kRows, kCols);
    *header.mutable_gram() = Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, kCols, kCols);
    return request;
  }
  static v1::PruneRequest WeightChunk(const std::string& bytes, int64_t offset, int64_t size) {
    v1::PruneRequest request;
    *request.mutable_weight() = MakeChunk(bytes, offset, size);
    return request;
  }
  static v1::PruneRequest GramChunk(const std::string& bytes, int64_t offset, int64_t size) {
    v1::PruneRequest request;
    *request.mutable_gram() = MakeChunk(bytes, offset, size);
    return request;
  }
  // Header, both tensors in two chunks each.
  void SendAll(Stream* stream, const v1::PruneRequest& header) {
    ASSERT_TRUE(stream->Write(header));
    const auto half = static_cast<int64_t>(weight_.size()) / 2;
    ASSERT_TRUE(stream->Write(WeightChunk(weight_, 0, half)));
    ASSERT_TRUE(stream->Write(WeightChunk(weight_, half, half)));
    const auto gram_half = static_cast<int64_t>(gram_.size()) / 2;
    ASSERT_TRUE(stream->Write(GramChunk(gram_, 0, gram_half)));
    ASSERT_TRUE(stream->Write(GramChunk(gram_, gram_half, gram_half)));
  }
  // Sends these messages, half-closes and returns how it ended.
  grpc::Status Error(const std::vector<v1::PruneRequest>& requests) {
    grpc::ClientContext context;
    const auto stream = server_.jobs->Prune(&context);
    for (const auto& request : requests) {
      if (!stream->Write(request)) break;
    }
    stream->WritesDone();
    v1::PruneResponse response;
    EXPECT_FALSE(stream->Read(&response)) << response.ShortDebugString();
    return stream->Finish();
  }
  void ExpectNothingLeft() {
    const auto clean = [this] {
      const TensorStoreUsage usage = server_.server->tensors().usage();
      return usage.uploads == 0 && usage.tensors == 0 && usage.used_bytes == 0;
    };
    EXPECT_TRUE(Eventually(clean)) << server_.server->tensors().usage().tensors << " tensors, "
                                   << server_.server->tensors().usage().uploads << " uploads";
  }
  // Reads Accepted, then until the job runs; returns its name.
  std::string ReadUntilRunning(Stream* stream) {
    v1::PruneResponse response;
    EXPECT_TRUE(stream->Read(&response));
    EXPECT_TRUE(response.has_accepted()) << response.ShortDebugString();
    const std::string job = response.accepted().job();
    while (stream->Read(&response)) {
      if (response.event().job().state() == v1::JOB_STATE_RUNNING) break;
    }
    return job;
  }

  const std::string weight_ = BytesOf(RandomValues(kRows * kCols, 1));
  const std::string gram_ = BytesOf(RandomGram(kCols, 2));
  TestServer server_;
};

TEST_F(PruneRpcTest, TensorsInMaskAndFinalJobOut) {
  grpc::ClientContext context;
  const auto stream = server_.jobs->Prune(&context);
  v1::PruneRequest header = Header();
  header.mutable_header()->mutable_spec()->set_return_pruned_weight(true);
  SendAll(stream.get(), header);
  stream->WritesDone();

  v1::PruneResponse response;
  ASSERT_TRUE(stream->Read(&response));
  ASSERT_TRUE(response.has_accepted()) << "Accepted comes first";
  const v1::PruneResponse::Accepted accepted = response.accepted();
  EXPECT_EQ(accepted.weight().rfind("tensors/", 0), 0U);
  EXPECT_EQ(accepted.gram().rfind("tensors/", 0), 0U);
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.event().kind(), v1::JobEvent::KIND_SNAPSHOT);

  std::string mask;
  std::string pruned;
  v1::Job final;
  while (stream->Read(&response)) {
    EXPECT_FALSE(final.has_spec()) << "the final job comes last";
    if (response.has_event()) {
      EXPECT_TRUE(mask.empty()) << "events come before the mask";
    }
    if (response.has_mask()) mask += response.mask().data();
    if (response.has_pruned_weight()) pruned += response.pruned_weight().data();
    if (response.has_job()) final = response.job();
  }
  const grpc::Status status = stream->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(final.name(), accepted.job());
  ASSERT_EQ(final.state(), v1::JOB_STATE_SUCCEEDED) << final.error().message();
  EXPECT_EQ(mask, server_.Read(final.result().mask()));
  EXPECT_EQ(pruned, server_.Read(final.result().pruned_weight()));
  EXPECT_EQ(Mask::FromBytes(kRows, kCols, std::as_bytes(std::span(mask)))->CountKept(),
            kRows * kCols / 2);
  EXPECT_EQ(pruned.size(), weight_.size());

  // The inputs were this call's alone; the results live as long as the job.
  EXPECT_EQ(server_.server->tensors().GetTensor(accepted.weight()).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(server_.server->tensors().usage().tensors, 2);
}

TEST_F(PruneRpcTest, GivesTheSameMaskAsTheLongWay) {
  grpc::ClientContext context;
  const auto stream = server_.jobs->Prune(&context);
  SendAll(stream.get(), Header());
  v1::PruneResponse response;
  std::string mask;
  while (stream->Read(&response)) mask += response.mask().data();
  ASSERT_TRUE(stream->Finish().ok()) << "it needs no half-close";
  v1::JobSpec spec = server_.Layer(kRows, kCols, 50);
  const v1::Job job = server_.WaitForEnd(server_.MustCreate(spec).name());
  EXPECT_EQ(mask, server_.Read(job.result().mask()));
}

TEST_F(PruneRpcTest, TakesActivationsAndNamedTensors) {
  v1::PruneRequest header = Header();
  header.mutable_header()->clear_weight();
  header.mutable_header()->clear_gram();
  header.mutable_header()->mutable_spec()->set_weight(server_.UploadWeight(kRows, kCols));
  header.mutable_header()->mutable_activations()->set_d_in(kCols);
  header.mutable_header()->mutable_activations()->set_activation_dtype(v1::DATA_TYPE_F32);
  header.mutable_header()->set_activation_tokens(100);
  const std::string x = BytesOf(RandomValues(100 * kCols, 9));
  grpc::ClientContext context;
  const auto stream = server_.jobs->Prune(&context);
  ASSERT_TRUE(stream->Write(header));
  for (int64_t token = 0; token < 100; token += 50) {
    v1::PruneRequest request;
    *request.mutable_activations() = MakeChunk(x, token * kCols * 4, 50 * kCols * 4);
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  v1::PruneResponse response;
  v1::Job final;
  while (stream->Read(&response)) {
    if (response.has_job()) final = response.job();
  }
  const grpc::Status status = stream->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(final.state(), v1::JOB_STATE_SUCCEEDED);
  // A tensor that has a name of its own stays.
  EXPECT_TRUE(server_.server->tensors().GetTensor(final.spec().weight()).ok());
}

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

TEST_F(PruneRpcTest, ClosingItEarlyCancelsTheJob) {
  std::string job;
  {
    grpc::ClientContext context;
    const auto stream = server_.jobs->Prune(&context);
    SendAll(stream.get(), Header(int64_t{1} << 40));
    job = ReadUntilRunning(stream.get());
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::CANCELLED);
  }
  EXPECT_EQ(server_.WaitForEnd(job).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(PruneRpcTest, ADetachedJobGoesOn) {
  v1::PruneRequest header = Header(int64_t{1} << 40);
  header.mutable_header()->set_detach(true);
  std::string job;
  {
    grpc::ClientContext context;
    const auto stream = server_.jobs->Prune(&context);
    SendAll(stream.get(), header);
    job = ReadUntilRunning(stream.get());
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::CANCELLED);
  }
  EXPECT_TRUE(Eventually([this] { return server_.server->calls().size() == 0; }));
  EXPECT_EQ(server_.GetJob(job).state(), v1::JOB_STATE_RUNNING);
  ASSERT_TRUE(server_.Cancel(job).ok());
  EXPECT_EQ(server_.WaitForEnd(job).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(PruneRpcTest, AStreamThatBreaksDuringTheUploadLeavesNothing) {
  grpc::ClientContext context;
  const auto stream = server_.jobs->Prune(&context);
  ASSERT_TRUE(stream->Write(Header()));
  ASSERT_TRUE(stream->Write(WeightChunk(weight_, 0, 100)));
  while (server_.server->tensors().usage().uploads == 0) std::this_thread::yield();
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::CANCELLED);
  ExpectNothingLeft();
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

TEST_F(PruneRpcTest, TheSameRequestIdFollowsTheSameJob) {
  v1::PruneRequest header = Header();
  header.mutable_header()->set_request_id("prune-1");
  std::vector<std::string> jobs;
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    const auto stream = server_.jobs->Prune(&context);
    SendAll(stream.get(), header);
    v1::PruneResponse response;
    while (stream->Read(&response)) {
      if (response.has_job()) jobs.push_back(response.job().name());
    }
    ASSERT_TRUE(stream->Finish().ok());
  }
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0], jobs[1]);
  // Only the mask of the one job is left.
  EXPECT_TRUE(Eventually([this] { return server_.server->tensors().usage().tensors == 1; }));
}

// A client repeats a broken call before the server has noticed the break.
TEST_F(PruneRpcTest, OnlyTheLastStreamOfARequestIdCancelsItsJob) {
  v1::PruneRequest header = Header(int64_t{1} << 40);
  header.mutable_header()->set_request_id("shared");
  grpc::ClientContext first_context;
  const auto first = server_.jobs->Prune(&first_context);
  SendAll(first.get(), header);
  const std::string job = ReadUntilRunning(first.get());
  grpc::ClientContext second_context;
  const auto second = server_.jobs->Prune(&second_context);
  SendAll(second.get(), header);
  EXPECT_EQ(ReadUntilRunning(second.get()), job);

  first_context.TryCancel();
  EXPECT_EQ(first->Finish().error_code(), grpc::CANCELLED);
  ASSERT_TRUE(Eventually([this] { return server_.server->calls().size() == 1; }));
  // It would be cancelled by now: progress made after the close is seen.
  v1::PruneResponse response;
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(second->Read(&response));
  EXPECT_EQ(server_.GetJob(job).state(), v1::JOB_STATE_RUNNING);

  second_context.TryCancel();
  EXPECT_EQ(second->Finish().error_code(), grpc::CANCELLED);
  EXPECT_EQ(server_.WaitForEnd(job).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(PruneRpcTest, ASlowReaderDoesNotKeepItsTensors) {
  constexpr int64_t kManyRows = 32 << 10;  // 8 MiB: beyond the flow-control window
  const std::string weight = BytesOf(RandomValues(kManyRows * 64, 3));
  const std::string gram = BytesOf(RandomGram(64, 4));
  v1::PruneRequest header = Header();
  header.mutable_header()->mutable_spec()->set_method(v1::METHOD_WANDA);
  *header.mutable_header()->mutable_weight() =
      Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, kManyRows, 64);
  *header.mutable_header()->mutable_gram() = Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, 64, 64);
  const v1::Job blocker = server_.MustCreate(server_.Endless());
  server_.WaitUntilRunning(blocker.name());
  grpc::ClientContext context;
  const auto stream = server_.jobs->Prune(&context);
  ASSERT_TRUE(stream->Write(header));
  constexpr int64_t kChunk = 1 << 20;
  for (int64_t at = 0; at < static_cast<int64_t>(weight.size()); at += kChunk) {
    ASSERT_TRUE(stream->Write(WeightChunk(weight, at, kChunk)));
  }
  ASSERT_TRUE(stream->Write(GramChunk(gram, 0, static_cast<int64_t>(gram.size()))));
  v1::PruneResponse response;
  ASSERT_TRUE(stream->Read(&response));
  const std::string name = response.accepted().weight();

  v1::ReadTensorRequest request;
  request.set_name(name);
  grpc::ClientContext read_context;
  // A window that does not grow with the speed of the connection, so that the
  // server cannot send everything before it is read.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto tensors = v1::TensorService::NewStub(grpc::CreateCustomChannel(
      server_.server->address(), grpc::InsecureChannelCredentials(), arguments));
  const auto reader = tensors->ReadTensor(&read_context, request);
  v1::ReadTensorResponse chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  ASSERT_TRUE(server_.Cancel(blocker.name()).ok());
  while (stream->Read(&response)) continue;
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(Eventually([&] { return !server_.server->tensors().GetTensor(name).ok(); }));
  std::string read = chunk.chunk().data();
  while (reader->Read(&chunk)) read += chunk.chunk().data();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(read == weight) << "the reader goes on to its end";
}

}  // namespace
}  // namespace sparsefw::server
