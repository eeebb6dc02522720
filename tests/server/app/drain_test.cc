// gRPC's callback server hangs in Shutdown for as long as one reactor has not
// called Finish: every drain here must end in bounded time.
#include <atomic>
#include <future>
#include <thread>

#include "gtest/gtest.h"
#include "health.grpc.pb.h"
#include "reflection.grpc.pb.h"
#include "server/rpc/convert/convert.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {
namespace {

// Forgets its jobs, so that a drain ends them.
ServerConfig DrainConfig(absl::Duration fetch_grace = absl::Seconds(2)) {
  ServerConfig config;
  config.store = "memory";
  config.fetch_grace = fetch_grace;
  return config;
}

// WaitUntilRunning is a watch, too: the server must know that it is gone.
bool NobodyCalls(TestServer& server) {
  return Eventually([&] { return server.server->calls().size() == 0; });
}

void Drain(TestServer& server, absl::Duration grace) {
  auto drained = std::async(std::launch::async, [&] { server.server->Drain(grace); });
  if (drained.wait_for(kHang) != std::future_status::ready) {
    ADD_FAILURE() << "the drain hangs";
    std::abort();  // nothing would join it
  }
}

// A watched job that ends by its deadline.
class WatchedJob {
 public:
  WatchedJob(TestServer& server, absl::Duration deadline) : server_(server) {
    v1::JobSpec spec = server.Endless();
    *spec.mutable_deadline() = ToProto(deadline);
    name_ = server.MustCreate(spec).name();
    watcher_ = std::thread([this] {
      ended_ = server_.WaitForEnd(name_);
      over_ = true;
    });
    while (!over_ && server_.server->calls().size() < 1) std::this_thread::yield();
    while (server_.server->jobs().Get(name_)->state == JobState::kQueued) std::this_thread::yield();
  }
  // False where this machine was too slow for the deadline.
  bool runs() const { return server_.server->jobs().Get(name_)->state == JobState::kRunning; }
  v1::Job End() {
    watcher_.join();
    return ended_;
  }

 private:
  TestServer& server_;
  std::string name_;
  std::thread watcher_;
  std::atomic<bool> over_ = false;
  v1::Job ended_;
};

TEST(DrainTest, AnIdleServerEndsAtOnce) {
  TestServer server(DrainConfig());
  Drain(server, absl::Hours(1));
  Drain(server, absl::ZeroDuration());  // again: nothing happens
}

TEST(DrainTest, OpenWatchesUploadsAndPrunesAllEnd) {
  TestServer server(DrainConfig());
  const v1::Job running = server.MustCreate(server.Endless());
  server.WaitUntilRunning(running.name());
  const v1::Job queued = server.MustCreate(server.Layer(8, 8, 5));

  constexpr int kEach = 10;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  const auto context = [&contexts] {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    return contexts.back().get();
  };
  std::vector<std::unique_ptr<grpc::ClientReader<v1::JobEvent>>> watches;
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::WriteTensorRequest>>> uploads;
  std::vector<std::unique_ptr<v1::WriteTensorResponse>> responses;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::PruneRequest, v1::PruneResponse>>>
      prunes;
  v1::WatchJobRequest watch;
  v1::WriteTensorRequest upload;
  *upload.mutable_spec() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 64, 64);
  for (int i = 0; i < kEach; ++i) {
    watch.set_name(i % 2 == 0 ? running.name() : queued.name());
    watches.push_back(server.jobs->WatchJob(context(), watch));
    responses.push_back(std::make_unique<v1::WriteTensorResponse>());
    uploads.push_back(server.tensors->WriteTensor(context(), responses.back().get()));
    ASSERT_TRUE(uploads.back()->Write(upload));
    prunes.push_back(server.jobs->Prune(context()));
  }
  while (server.server->calls().size() < 3 * kEach) std::this_thread::yield();

  Drain(server, absl::ZeroDuration());
  for (const auto& stream : uploads) {
    stream->WritesDone();
    EXPECT_TRUE(Failed(stream->Finish(), grpc::UNAVAILABLE, "DRAINING", "draining"));
  }
  for (const auto& stream : prunes) {
    EXPECT_TRUE(Failed(stream->Finish(), grpc::UNAVAILABLE, "DRAINING", "draining"));
  }
  for (const auto& stream : watches) {
    v1::JobEvent event;
    v1::JobEvent last;
    while (stream->Read(&event)) last = event;
    EXPECT_EQ(last.job().state(), v1::JOB_STATE_CANCELLED);
    EXPECT_TRUE(stream->Finish().ok()) << "a watch ends with its job";
  }
}

TEST(DrainTest, ClientsThatDoNotReadHoldNobodyUp) {
  TestServer server(DrainConfig());
  const std::string big = server.UploadWeight(2048, 2048);  // beyond any flow-control window
  v1::ReadTensorRequest request;
  request.set_name(big);
  grpc::ClientContext context;
  const auto reader = server.tensors->ReadTensor(&context, request);
  v1::ReadTensorResponse response;
  ASSERT_TRUE(reader->Read(&response));
  Drain(server, absl::ZeroDuration());
  while (reader->Read(&response)) continue;
  EXPECT_EQ(reader->Finish().error_code(), grpc::UNAVAILABLE);
}

// It would read on for as long as the client likes.
TEST(DrainTest, AReflectionStreamThatComesWhileItDrainsEnds) {
  TestServer server(DrainConfig());
  const v1::Job job = server.MustCreate(server.Endless());
  server.WaitUntilRunning(job.name());
  ASSERT_TRUE(NobodyCalls(server));
  const auto reflection = grpc::reflection::v1alpha::ServerReflection::NewStub(server.Connect());
  std::thread drain([&] { server.server->Drain(absl::Seconds(60)); });
  while (!server.server->calls().draining()) std::this_thread::yield();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const auto stream = reflection->ServerReflectionInfo(&context);
  grpc::reflection::v1alpha::ServerReflectionResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(Failed(stream->Finish(), grpc::UNAVAILABLE, "DRAINING", "draining"));
  EXPECT_TRUE(server.Cancel(job.name()).ok());
  drain.join();
}

TEST(DrainTest, RunningJobsMayFinishAndTheirWatchersAreTold) {
  EXPECT_TRUE(InTime(absl::Seconds(1), [](absl::Duration time) {
    TestServer server(DrainConfig());
    WatchedJob job(server, time);
    const bool runs = job.runs();
    Drain(server, absl::Hours(1));
    const v1::Job ended = job.End();
    EXPECT_TRUE(!runs || ended.state() == v1::JOB_STATE_SUCCEEDED);
    EXPECT_TRUE(!runs || ended.result().stop_reason() == v1::STOP_REASON_DEADLINE);
    return runs;
  }));
}

// A client waits for the end, sees to something else, and then reads.
TEST(DrainTest, TheMaskOfAWatchedJobCanStillBeFetched) {
  EXPECT_TRUE(InTime(absl::Seconds(1), [](absl::Duration time) {
    TestServer server(DrainConfig(absl::Hours(1)));
    WatchedJob job(server, time);
    std::thread drain([&] { Drain(server, absl::Hours(1)); });
    while (!server.server->calls().draining()) std::this_thread::yield();
    const bool runs = job.runs();
    const v1::Job ended = job.End();
    // Its watch has ended: no call shows the server that it will read.
    while (server.server->calls().size() > 0) std::this_thread::yield();
    EXPECT_TRUE(!runs || server.Read(ended.result().mask()).size() == 64U * 64 / 8);
    drain.join();
    return runs;
  }));
}

TEST(DrainTest, AWatcherThatDoesNotFetchIsWaitedForWithinTheGrace) {
  TestServer server(DrainConfig(absl::Seconds(1)));
  const v1::Job job = server.MustCreate(server.Endless());
  server.WaitUntilRunning(job.name());
  ASSERT_TRUE(NobodyCalls(server));
  std::thread watcher([&] { server.WaitForEnd(job.name()); });
  while (server.server->calls().size() < 1) std::this_thread::yield();
  Drain(server, absl::ZeroDuration());
  watcher.join();
}

TEST(DrainTest, AJobThatNobodyWatchesDelaysNothing) {
  TestServer server(DrainConfig(absl::Hours(1)));
  const v1::Job job = server.MustCreate(server.Endless());
  server.WaitUntilRunning(job.name());
  ASSERT_TRUE(NobodyCalls(server));
  Drain(server, absl::ZeroDuration());
}

TEST(DrainTest, WhileItDrainsNewWorkIsRefusedAndReadsGoOn) {
  TestServer server(DrainConfig());
  const v1::JobSpec spec = server.Endless();
  const v1::Job job = server.MustCreate(spec);
  server.WaitUntilRunning(job.name());
  ASSERT_TRUE(NobodyCalls(server));
  const auto health = grpc::health::v1::Health::NewStub(server.Connect());
  const auto serving = [&health](const std::string& service) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    EXPECT_TRUE(health->Check(&context, request, &response).ok());
    return response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  };
  EXPECT_TRUE(serving("sparsefw.v1.PruneService"));
  std::thread drain([&] { server.server->Drain(absl::Seconds(60)); });
  while (!server.server->calls().draining()) std::this_thread::yield();

  for (const char* service : {"", "sparsefw.v1.PruneService", "sparsefw.v1.TensorService"}) {
    EXPECT_FALSE(serving(service)) << service;
  }
  v1::Job refused;
  const grpc::Status status = server.CreateJob(spec, &refused);
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(DetailsOf(status).reason, "DRAINING");
  EXPECT_TRUE(DetailsOf(status).has_retry);
  v1::Tensor tensor;
  EXPECT_TRUE(Failed(server.TryUpload(Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 2, 2),
                                      std::string(16, 'x'), &tensor),
                     grpc::UNAVAILABLE, "DRAINING", "draining"));
  EXPECT_EQ(server.GetJob(job.name()).state(), v1::JOB_STATE_RUNNING);
  EXPECT_FALSE(server.Read(spec.gram()).empty());
  ASSERT_TRUE(server.Cancel(job.name()).ok());
  drain.join();
}

// With a durable store nobody is told of an end: the next server runs the jobs.
TEST(DrainTest, WatchersOfJobsThatStayAreSentAwayAtOnce) {
  TestServer server;
  const v1::Job running = server.MustCreate(server.Endless());
  server.WaitUntilRunning(running.name());
  const v1::Job queued = server.MustCreate(server.Layer(8, 8, 5));
  v1::WatchJobRequest request;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::JobEvent>>> watches;
  for (const std::string& name : {running.name(), queued.name()}) {
    request.set_name(name);
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    watches.push_back(server.jobs->WatchJob(contexts.back().get(), request));
  }
  while (server.server->calls().size() < 2) std::this_thread::yield();
  std::thread drain([&] { Drain(server, absl::Seconds(1)); });
  v1::JobEvent event;
  while (watches[1]->Read(&event)) EXPECT_EQ(event.job().state(), v1::JOB_STATE_QUEUED);
  const grpc::Status waiting = watches[1]->Finish();
  EXPECT_TRUE(Failed(waiting, grpc::UNAVAILABLE, "DRAINING", "draining"));
  EXPECT_TRUE(DetailsOf(waiting).has_retry);
  std::vector<v1::JobState> states;
  while (watches[0]->Read(&event)) {
    if (event.kind() != v1::JobEvent::KIND_PROGRESS) states.push_back(event.job().state());
  }
  EXPECT_TRUE(Failed(watches[0]->Finish(), grpc::UNAVAILABLE, "DRAINING", "draining"));
  EXPECT_EQ(states, (std::vector<v1::JobState>{v1::JOB_STATE_RUNNING, v1::JOB_STATE_QUEUED}));
  drain.join();
}

TEST(DrainTest, AStreamOfPruneIsSentAwayAndItsJobStays) {
  TestServer server;
  const v1::Job running = server.MustCreate(server.Endless());
  server.WaitUntilRunning(running.name());
  grpc::ClientContext context;
  const auto stream = server.jobs->Prune(&context);
  v1::PruneRequest request;
  *request.mutable_header()->mutable_spec() = server.Layer(8, 8, 5);
  ASSERT_TRUE(stream->Write(request));
  v1::PruneResponse response;
  ASSERT_TRUE(stream->Read(&response));
  const std::string job = response.accepted().job();
  std::thread drain([&] { Drain(server, absl::Seconds(1)); });
  while (stream->Read(&response)) EXPECT_EQ(response.event().job().state(), v1::JOB_STATE_QUEUED);
  EXPECT_TRUE(Failed(stream->Finish(), grpc::UNAVAILABLE, "DRAINING", "draining"));
  drain.join();
  EXPECT_EQ(server.server->jobs().Get(job)->state, JobState::kQueued) << "not cancelled";
}

// It is closed at the end of the drain, with events that it has not taken.
TEST(DrainTest, TheJobOfAStreamThatDoesNotReadStays) {
  ServerConfig config;
  config.fetch_grace = absl::Milliseconds(100);
  TestServer server(config);
  grpc::ChannelArguments no_window;
  no_window.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1);
  no_window.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = v1::PruneService::NewStub(grpc::CreateCustomChannel(
      server.server->address(), grpc::InsecureChannelCredentials(), no_window));
  grpc::ClientContext context;
  const auto stream = stub->Prune(&context);
  v1::PruneRequest request;
  *request.mutable_header()->mutable_spec() = server.Endless();
  // The drain may come before the stream knows that its job was accepted.
  request.mutable_header()->set_request_id("leads back to the job");
  ASSERT_TRUE(stream->Write(request));
  const auto jobs = [&] { return server.server->jobs().List({}, 10, "")->jobs; };
  ASSERT_TRUE(
      Eventually([&] { return jobs().size() == 1 && jobs()[0].state == JobState::kRunning; }));
  Drain(server, absl::ZeroDuration());
  EXPECT_EQ(jobs()[0].state, JobState::kQueued);
  context.TryCancel();
  stream->Finish();
}

TEST(DrainTest, AHealthWatchDoesNotKeepItOpen) {
  TestServer server(DrainConfig());
  const auto health = grpc::health::v1::Health::NewStub(server.Connect());
  grpc::ClientContext context;
  const auto watch = health->Watch(&context, grpc::health::v1::HealthCheckRequest());
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  Drain(server, absl::ZeroDuration());
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
}

}  // namespace
}  // namespace sparsefw::server
