// Many fast senders, a small staging budget: all complete, nothing piles up.
#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {
namespace {

constexpr int64_t kBudget = 4 << 20;
constexpr int kStreams = 6;
constexpr int64_t kSide = 2048;  // 16 MiB a tensor

ServerConfig SmallStaging() {
  ServerConfig config;
  config.staging_memory_bytes = kBudget;
  config.io_threads = 2;
  return config;
}

TEST(BackpressureTest, StreamsShareASmallBudgetAndAllComplete) {
  TestServer server(SmallStaging());
  const std::string bytes = BytesOf(RandomValues(kSide * kSide, 5));
  std::atomic<bool> stop{false};
  std::atomic<int64_t> most{0};
  std::thread watcher([&] {
    while (!stop) {
      most = std::max(most.load(), server.server->staging().used());
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> clients;
  std::vector<std::string> names(kStreams);
  for (size_t i = 0; i < kStreams; ++i) {
    clients.emplace_back([&, i] {
      names[i] =
          server.Upload(Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, kSide, kSide), bytes);
    });
  }
  for (std::thread& client : clients) client.join();
  stop = true;
  watcher.join();
  EXPECT_LE(most, kBudget);
  EXPECT_TRUE(Eventually([&] { return server.server->staging().used() == 0; }));
  EXPECT_EQ(server.Read(names[0]), bytes);
  EXPECT_EQ(server.Read(names[kStreams - 1]), bytes);
}

TEST(BackpressureTest, SilentStreamsHoldNothingOfTheBudget) {
  TestServer server(SmallStaging());
  // More open streams than the budget has room for messages of the largest size.
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<v1::WriteTensorResponse>> responses;
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::WriteTensorRequest>>> silent;
  for (int i = 0; i < 8; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    responses.push_back(std::make_unique<v1::WriteTensorResponse>());
    silent.push_back(server.tensors->WriteTensor(contexts.back().get(), responses.back().get()));
    v1::WriteTensorRequest request;
    *request.mutable_spec() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 8, 8);
    ASSERT_TRUE(silent.back()->Write(request));
  }
  const std::string name = server.UploadWeight(kSide, 64);
  EXPECT_FALSE(name.empty());
  for (size_t i = 0; i < silent.size(); ++i) {
    contexts[i]->TryCancel();
    silent[i]->Finish();
  }
}

TEST(BackpressureTest, AClientThatGoesAwayGivesItsRoomBack) {
  TestServer server(SmallStaging());
  const std::string bytes(2 << 20, 'x');
  for (int round = 0; round < 5; ++round) {
    std::vector<std::thread> clients;
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back([&] {
        grpc::ClientContext context;
        v1::WriteTensorResponse response;
        const auto writer = server.tensors->WriteTensor(&context, &response);
        v1::WriteTensorRequest request;
        *request.mutable_spec() = Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, 4096, 2048);
        for (int64_t offset = 0; offset < 4; ++offset) {
          *request.mutable_chunk() = MakeChunk(bytes, 0, 2 << 20);
          request.mutable_chunk()->set_offset(offset << 21);
          if (!writer->Write(request)) break;
          request.clear_spec();
        }
        context.TryCancel();
        writer->Finish();
      });
    }
    for (std::thread& client : clients) client.join();
  }
  const auto idle = [&] {
    return server.server->staging().used() == 0 && server.server->staging().waiting() == 0 &&
           server.server->calls().size() == 0 && server.server->tensors().usage().uploads == 0;
  };
  EXPECT_TRUE(Eventually(idle));
  EXPECT_FALSE(server.UploadWeight(1024, 1024).empty());
}

}  // namespace
}  // namespace sparsefw::server
