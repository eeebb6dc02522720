// A server besides its two services: info, health, reflection,
// metrics, and the ways in which it does not start.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "health.grpc.pb.h"
#include "server/net/listen_sockets.h"
#include "server/runner/devices.h"
#include "sparsefw/reason.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {
namespace {

std::string HttpGet(const std::string& address, const std::string& path) {
  const std::optional<HostPort> where = ParseHostPort(address);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(where->port));
  inet_pton(AF_INET, where->host.c_str(), &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  std::string response;
  char buffer[4096];
  for (ssize_t got = 0; (got = recv(fd, buffer, sizeof buffer, 0)) > 0;) {
    response.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  return response;
}

// The reflection protocol by hand: its generated code is inside gRPC's library
// already, and may not be there twice.
std::string ListServices(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const auto stream = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  void* tag = nullptr;
  bool ok = false;
  const auto wait = [&] { return queue.Next(&tag, &ok) && ok; };
  stream->StartCall(nullptr);
  EXPECT_TRUE(wait());
  const grpc::Slice list_services("\x3a\x01*", 3);  // list_services = "*"
  stream->Write(grpc::ByteBuffer(&list_services, 1), nullptr);
  EXPECT_TRUE(wait());
  grpc::ByteBuffer response;
  stream->Read(&response, nullptr);
  EXPECT_TRUE(wait());
  stream->WritesDone(nullptr);
  wait();
  grpc::Status status;
  stream->Finish(&status, nullptr);
  wait();
  EXPECT_TRUE(status.ok()) << status.error_message();
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(response.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

TEST(ServerTest, SaysWhatItIs) {
  TestServer server;
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(server.jobs->GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_FALSE(info.version().empty());
  ASSERT_EQ(info.devices_size(), static_cast<int>(Backends().size()));
  EXPECT_EQ(info.devices(0).name(), "cpu");
  for (const v1::Device& device : info.devices()) {
    EXPECT_FALSE(device.description().empty()) << device.name();
    EXPECT_GT(device.memory_bytes(), 0) << device.name();
    EXPECT_GT(device.memory_free_bytes(), 0) << device.name();
  }
  EXPECT_EQ(info.default_device(), "cpu");
  EXPECT_EQ(info.default_device_reason(),
            "auto: no CUDA device (SPARSEFW_CUDA_MODULE=none turns CUDA off), so cpu");
  EXPECT_EQ(info.methods_size(), 6);
  EXPECT_EQ(info.patterns_size(), 3);
  EXPECT_EQ(info.workers(), 1);
  EXPECT_EQ(info.max_message_bytes(), 2 << 20);
  EXPECT_EQ(info.suggested_chunk_bytes(), 1 << 20);
  EXPECT_EQ(info.host_memory_bytes(), int64_t{8} << 30);
  EXPECT_EQ(info.host_memory_used_bytes(), 0);
  EXPECT_EQ(info.max_tensor_bytes(), int64_t{8} << 30) << "no more than the budget";
  EXPECT_FALSE(info.draining());
}

TEST(ServerTest, HealthKnowsEachServiceAndNoOther) {
  TestServer server;
  const auto health = grpc::health::v1::Health::NewStub(server.Connect());
  for (const char* service : {"", "sparsefw.v1.TensorService", "sparsefw.v1.PruneService"}) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    ASSERT_TRUE(health->Check(&context, request, &response).ok()) << service;
    EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING) << service;
  }
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("no.such.Service");
  grpc::health::v1::HealthCheckResponse response;
  EXPECT_EQ(health->Check(&context, request, &response).error_code(), grpc::NOT_FOUND);
}

TEST(ServerTest, ReflectionListsTheServices) {
  TestServer server;
  const std::string services = ListServices(server.Connect());
  for (const char* service :
       {"sparsefw.v1.TensorService", "sparsefw.v1.PruneService", "grpc.health.v1.Health"}) {
    EXPECT_NE(services.find(service), std::string::npos) << service;
  }
}

TEST(ServerTest, MetricsCountTheCalls) {
  TestServer server;
  const std::string bytes(16, '\0');
  server.Upload(Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 2, 2), bytes);
  EXPECT_EQ(server.WaitForEnd(server.MustCreate(server.Layer(8, 8, 5)).name()).state(),
            v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(server.Cancel("jobs/none").ok());
  const auto scrape = [&] { return HttpGet(server.server->metrics_address(), "/metrics"); };
  const auto wanted = {
      "sparsefw_rpc_started_total{method=\"TensorService/WriteTensor\"} 3",
      "sparsefw_rpc_duration_seconds_count{code=\"OK\",method=\"TensorService/WriteTensor\"} 3",
      "sparsefw_rpc_duration_seconds_count{code=\"NOT_FOUND\",method=\"PruneService/CancelJob\"} 1",
      "sparsefw_rpc_received_bytes_total{method=\"TensorService/WriteTensor\"} 528",
      "sparsefw_job_queue_depth 0",
      "sparsefw_jobs{state=\"succeeded\"} 1",
      "sparsefw_tensors 4",
      "sparsefw_draining 0",
  };
  const std::string page = scrape();
  EXPECT_EQ(page.rfind("HTTP/1.1 200", 0), 0U);
  for (const std::string line : wanted) {
    EXPECT_NE(page.find(line), std::string::npos) << line << "\n" << page;
  }
}

TEST(ServerTest, EveryCallThatBeganHasEnded) {
  TestServer server;
  server.Upload(Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 2, 2), std::string(16, '\0'));
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    const auto stream = server.jobs->Prune(&context);
    context.TryCancel();
    stream->Finish();
  }
  const auto idle = [&] {
    const std::string page = HttpGet(server.server->metrics_address(), "/metrics");
    return server.server->calls().size() == 0 &&
           page.find("sparsefw_rpc_in_flight{method=\"TensorService/WriteTensor\"} 0") !=
               std::string::npos &&
           page.find("sparsefw_watchers 0") != std::string::npos;
  };
  EXPECT_TRUE(Eventually(idle));
}

TEST(ServerTest, ACallPastItsDeadlineEndsAndIsCountedAsSuch) {
  TestServer server;
  const v1::Job job = server.MustCreate(server.Endless());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  v1::WatchJobRequest request;
  request.set_name(job.name());
  const auto watch = server.jobs->WatchJob(&context, request);
  v1::JobEvent event;
  while (watch->Read(&event)) continue;
  EXPECT_EQ(watch->Finish().error_code(), grpc::DEADLINE_EXCEEDED);
  EXPECT_NE(server.GetJob(job.name()).state(), v1::JOB_STATE_CANCELLED)
      << "a job has its own deadline";
  ASSERT_TRUE(server.Cancel(job.name()).ok());
}

TEST(ServerTest, APortInUseIsOneSentence) {
  TestServer first;
  Logger logger("error", "text");
  ServerConfig config = TestConfig();
  config.store = "memory";
  config.listen = first.server->address();
  config.tensors.spool_dir = first.dir + "/other";
  const auto second = Server::Start(config, &logger);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(second.status()), "ADDRESS_UNAVAILABLE");
  EXPECT_EQ(std::string(second.status().message()),
            "cannot listen on " + first.server->address() + ": Address already in use");

  config.listen = "127.0.0.1:0";
  config.metrics_listen = first.server->metrics_address();
  config.tensors.spool_dir = first.dir + "/third";
  const auto third = Server::Start(config, &logger);
  ASSERT_FALSE(third.ok());
  EXPECT_NE(std::string(third.status().message()).find(first.server->metrics_address()),
            std::string::npos);
}

TEST(ServerTest, ASpoolFolderBelongsToOneServer) {
  TestServer first;
  Logger logger("error", "text");
  ServerConfig config = TestConfig();
  config.store = "memory";
  config.tensors.spool_dir = first.dir + "/spool";
  const auto second = Server::Start(config, &logger);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition) << second.status();
}

// Two with one database, which other spool folders do not show.
TEST(ServerTest, AStateFolderBelongsToOneServer) {
  TestServer first;
  Logger logger("error", "text");
  ServerConfig config = TestConfig();
  config.store = "sqlite";
  config.state_dir = first.dir;
  config.tensors.spool_dir = first.dir + "/other";
  const auto second = Server::Start(config, &logger);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition) << second.status();
  EXPECT_EQ(ReasonOf(second.status()), "STATE_IN_USE");
}

TEST(ServerTest, ADeviceThatIsNotThereIsNotReplaced) {
  Logger logger("error", "text");
  ServerConfig config = TestConfig();
  config.device = "cuda";
  const auto server = Server::Start(config, &logger);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(server.status()), "DEVICE_UNAVAILABLE");
  EXPECT_EQ(std::string(server.status().message()),
            "device must be one of cpu, reference; got cuda, and there is no CUDA device: "
            "SPARSEFW_CUDA_MODULE=none turns CUDA off");
}

TEST(ServerTest, AnswersWithoutASocket) {
  TestServer server;
  const auto stub = v1::PruneService::NewStub(server.server->InProcessChannel());
  grpc::ClientContext context;
  v1::ServerInfo info;
  EXPECT_TRUE(stub->GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
}

TEST(ServerTest, AQueueThatIsFullSaysWhenToTryAgain) {
  ServerConfig config;
  config.jobs.max_queued_jobs = 1;
  TestServer server(config);
  const v1::JobSpec spec = server.Endless();
  const v1::Job running = server.MustCreate(spec);
  server.WaitUntilRunning(running.name());
  const v1::Job queued = server.MustCreate(spec);
  v1::Job refused;
  const grpc::Status status = server.CreateJob(spec, &refused);
  EXPECT_TRUE(Failed(status, grpc::RESOURCE_EXHAUSTED, "QUEUE_FULL", ""));
  EXPECT_TRUE(DetailsOf(status).has_retry);
  EXPECT_GT(DetailsOf(status).retry_ms, 0);
  ASSERT_TRUE(server.Cancel(queued.name()).ok());
  ASSERT_TRUE(server.Cancel(running.name()).ok());
}

TEST(ServerTest, MemoryIsReservedWhenAnUploadIsMade) {
  ServerConfig config;
  config.tensors.budget_bytes = 1 << 20;
  TestServer server(config);
  v1::CreateUploadRequest request;
  *request.mutable_tensor() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 512, 384);  // 768 KiB
  v1::CreateUploadResponse response;
  grpc::ClientContext first;
  ASSERT_TRUE(server.tensors->CreateUpload(&first, request, &response).ok());
  grpc::ClientContext second;
  const grpc::Status full = server.tensors->CreateUpload(&second, request, &response);
  EXPECT_TRUE(Failed(full, grpc::RESOURCE_EXHAUSTED, "HOST_MEMORY", ""));
  EXPECT_TRUE(DetailsOf(full).has_retry);
  *request.mutable_tensor() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 1024, 1024);
  grpc::ClientContext third;
  EXPECT_TRUE(Failed(server.tensors->CreateUpload(&third, request, &response),
                     grpc::RESOURCE_EXHAUSTED, "TENSOR_TOO_LARGE", ""));
}

TEST(ServerTest, RoomForTheResultIsReservedWhenAJobIsAccepted) {
  ServerConfig config;
  config.tensors.budget_bytes = 3 * 64 * 64 * 4;  // weight, Gram and as much again
  TestServer server(config);
  v1::JobSpec spec = server.Endless();
  spec.set_return_pruned_weight(true);
  v1::Job job;
  const grpc::Status full = server.CreateJob(spec, &job);
  EXPECT_TRUE(Failed(full, grpc::RESOURCE_EXHAUSTED, "HOST_MEMORY", "results")) << "and a mask";
  EXPECT_TRUE(DetailsOf(full).has_retry);
  spec.set_return_pruned_weight(false);
  const v1::Job accepted = server.MustCreate(spec);
  v1::Tensor tensor;
  EXPECT_TRUE(Failed(server.TryUpload(Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 64, 64),
                                      std::string(64 * 64 * 4, 0), &tensor),
                     grpc::RESOURCE_EXHAUSTED, "HOST_MEMORY", ""));
  server.WaitUntilRunning(accepted.name());
  ASSERT_TRUE(server.Cancel(accepted.name()).ok());
  server.WaitForEnd(accepted.name());
}

TEST(ServerTest, AJobBeyondTheSolveMemoryIsRefusedNamingBothNumbers) {
  ServerConfig config;
  config.solve_memory_bytes = 1 << 20;
  TestServer server(config);
  v1::Job job;
  const grpc::Status refused = server.CreateJob(server.Layer(512, 512, 10), &job);
  EXPECT_TRUE(Failed(refused, grpc::RESOURCE_EXHAUSTED, "HOST_MEMORY", "[512, 512] needs about"));
  EXPECT_NE(refused.error_message().find("1048576"), std::string::npos) << refused.error_message();
  EXPECT_FALSE(DetailsOf(refused).has_retry) << "waiting does not help";
  EXPECT_EQ(server.WaitForEnd(server.MustCreate(server.Layer(8, 8, 5)).name()).state(),
            v1::JOB_STATE_SUCCEEDED);
}

TEST(ServerTest, ExpiredJobsAndTheirMasksGo) {
  ServerConfig config;
  config.gc_interval = absl::Milliseconds(50);
  TestServer server(config);
  v1::JobSpec spec = server.Layer(8, 8, 5);
  spec.mutable_result_ttl()->set_nanos(200'000'000);
  const v1::Job job = server.WaitForEnd(server.MustCreate(spec).name());
  EXPECT_FALSE(job.result().mask().empty());
  EXPECT_TRUE(Eventually([&] { return !server.server->jobs().Get(job.name()).ok(); }));
  EXPECT_EQ(server.server->jobs().Get(job.name()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Eventually([&] { return server.server->tensors().usage().tensors == 2; }));
}

}  // namespace
}  // namespace sparsefw::server
