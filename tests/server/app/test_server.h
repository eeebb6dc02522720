// A real server with real sockets, and the few client calls every test needs.
#ifndef SPARSEFW_TESTS_SERVER_APP_TEST_SERVER_H_
#define SPARSEFW_TESTS_SERVER_APP_TEST_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/app/server.h"
#include "sparsefw/v1/prune_service.grpc.pb.h"
#include "sparsefw/v1/tensor_service.grpc.pb.h"
#include "tests/testing/hang.h"

namespace sparsefw::server {

// The content of a google.rpc.Status in a call's details.
struct ErrorDetails {
  std::string reason;
  std::string domain;
  std::map<std::string, std::string> metadata;
  bool has_retry = false;
  int64_t retry_ms = 0;
};
ErrorDetails DetailsOf(const grpc::Status& status);

// Passes when the call failed with this code, this reason, and a message that
// holds `words`.
testing::AssertionResult Failed(const grpc::Status& status, grpc::StatusCode code,
                                const std::string& reason, const std::string& words);

// Fixed seed; values in [-1, 1).
std::vector<float> RandomValues(size_t count, uint32_t seed);
// X X^T of random activations: symmetric, positive semidefinite.
std::vector<float> RandomGram(int64_t d_in, uint32_t seed);
std::string BytesOf(const std::vector<float>& values);

v1::TensorSpec Spec(v1::TensorKind kind, v1::DataType dtype, int64_t rows, int64_t cols);
v1::Chunk MakeChunk(const std::string& bytes, int64_t offset, int64_t size);

struct TestServer {
  explicit TestServer(ServerConfig config = {});
  ~TestServer();

  std::shared_ptr<grpc::Channel> Connect() const;  // a connection of its own

  // Uploads; fails the test when the server refuses.
  std::string Upload(const v1::TensorSpec& spec, const std::string& bytes);
  // As one call; the status is the caller's business.
  grpc::Status TryUpload(const v1::TensorSpec& spec, const std::string& bytes, v1::Tensor* tensor);
  std::string UploadWeight(int64_t rows, int64_t cols, uint32_t seed = 1);
  std::string UploadGram(int64_t d_in, uint32_t seed = 2);

  // SparseFW over fresh tensors of this shape, per-row 50 %.
  v1::JobSpec Layer(int64_t rows, int64_t cols, int64_t iterations);
  // One that runs until it is stopped.
  v1::JobSpec Endless() { return Layer(64, 64, int64_t{1} << 40); }

  grpc::Status CreateJob(const v1::JobSpec& spec, v1::Job* job);
  v1::Job MustCreate(const v1::JobSpec& spec);
  v1::Job GetJob(const std::string& name);
  // Follows the job until it has ended.
  v1::Job WaitForEnd(const std::string& name);
  void WaitUntilRunning(const std::string& name);
  grpc::Status Cancel(const std::string& name);
  std::string Read(const std::string& tensor);

  std::string dir;
  Logger logger{"error", "text"};
  std::unique_ptr<Server> server;
  std::unique_ptr<v1::TensorService::Stub> tensors;
  std::unique_ptr<v1::PruneService::Stub> jobs;
};

// Loopback, free ports, a folder that did not exist.
ServerConfig TestConfig();

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_APP_TEST_SERVER_H_
