// Prune calls on a server of their own.
#ifndef SPARSEFW_TESTS_SERVER_RPC_JOBS_PRUNE_FIXTURE_H_
#define SPARSEFW_TESTS_SERVER_RPC_JOBS_PRUNE_FIXTURE_H_

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/crc32c.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {

class PruneRpcTest : public testing::Test {
 protected:
  static constexpr int64_t kRows = 16;
  static constexpr int64_t kCols = 32;
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
  // A weight that another stream has sent, whose job is still to come.
  std::string WeightOfAnotherStream() {
    TensorStore& store = server_.server->tensors();
    const TensorSpec spec = {TensorKind::kWeight, DType::kF32, kRows, kCols, 0};
    const auto created = store.CreateUpload(spec, "", Owner{"default", ""}, UploadLife::kJob);
    EXPECT_TRUE(created.ok()) << created.status();
    const std::string upload = std::get<UploadInfo>(*created).name;
    const auto bytes = std::as_bytes(std::span(weight_));
    EXPECT_TRUE(store.Write(upload, 0, bytes, Crc32c(bytes)).ok());
    return store.Finish(upload, std::nullopt)->name;
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
    bool running = false;
    while (!running && stream->Read(&response)) {
      running = response.event().job().state() == v1::JOB_STATE_RUNNING;
    }
    EXPECT_TRUE(running) << job;
    return job;
  }
  // The job of a stream that breaks once the job runs.
  std::string RunAndBreak(const v1::PruneRequest& header) {
    grpc::ClientContext context;
    const auto stream = server_.jobs->Prune(&context);
    SendAll(stream.get(), header);
    const std::string job = ReadUntilRunning(stream.get());
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::CANCELLED);
    return job;
  }

  const std::string weight_ = BytesOf(RandomValues(kRows * kCols, 1));
  const std::string gram_ = BytesOf(RandomGram(kCols, 2));
  TestServer server_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_RPC_JOBS_PRUNE_FIXTURE_H_
