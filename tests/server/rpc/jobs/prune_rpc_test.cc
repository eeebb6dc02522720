// The one-call form.
#include <string>
#include <thread>
#include <vector>

#include "sparsefw/mask.h"
#include "tests/server/rpc/jobs/prune_fixture.h"

namespace sparsefw::server {
namespace {

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

TEST_F(PruneRpcTest, ClosingItEarlyCancelsTheJob) {
  const std::string job = RunAndBreak(Header(int64_t{1} << 40));
  EXPECT_EQ(server_.WaitForEnd(job).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(PruneRpcTest, ADetachedJobGoesOn) {
  v1::PruneRequest header = Header(int64_t{1} << 40);
  header.mutable_header()->set_detach(true);
  const std::string job = RunAndBreak(header);
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

// The server has noticed the break first, and cancelled the job.
TEST_F(PruneRpcTest, ARepeatedRequestRunsTheJobThatItsBrokenStreamTookAlong) {
  v1::PruneRequest header = Header(int64_t{1} << 40);
  header.mutable_header()->set_request_id("again");
  const std::string job = RunAndBreak(header);
  ASSERT_EQ(server_.WaitForEnd(job).state(), v1::JOB_STATE_CANCELLED);
  ASSERT_TRUE(Eventually([this] { return server_.server->calls().size() == 0; }));
  const std::string second = RunAndBreak(header);  // it is seen running
  EXPECT_NE(second, job);
  EXPECT_EQ(server_.WaitForEnd(second).state(), v1::JOB_STATE_CANCELLED);
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
