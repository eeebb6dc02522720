#include "tests/server/app/test_server.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "google/rpc/status.pb.h"
#include "sparsefw/crc32c.h"

namespace sparsefw::server {
namespace {

// The same devices on every machine, unless a test has set it already.
[[maybe_unused]] const int g_no_cuda = setenv("SPARSEFW_CUDA_MODULE", "none", 0);

}  // namespace

ErrorDetails DetailsOf(const grpc::Status& status) {
  ErrorDetails result;
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return result;
  for (const auto& any : details.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&info)) {
      result.reason = info.reason();
      result.domain = info.domain();
      result.metadata = {info.metadata().begin(), info.metadata().end()};
    } else if (any.UnpackTo(&retry)) {
      result.has_retry = true;
      result.retry_ms =
          retry.retry_delay().seconds() * 1000 + retry.retry_delay().nanos() / 1000000;
    }
  }
  return result;
}

testing::AssertionResult Failed(const grpc::Status& status, grpc::StatusCode code,
                                const std::string& reason, const std::string& words) {
  const ErrorDetails details = DetailsOf(status);
  if (status.error_code() == code && details.reason == reason && details.domain == "sparsefw" &&
      status.error_message().find(words) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << "code " << status.error_code() << ", reason \"" << details.reason << "\", message \""
         << status.error_message() << "\"; wanted code " << code << ", reason \"" << reason
         << "\", words \"" << words << "\"";
}

std::vector<float> RandomValues(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

std::vector<float> RandomGram(int64_t d_in, uint32_t seed) {
  const auto n = static_cast<size_t>(d_in);
  const size_t tokens = n + 8;
  const std::vector<float> x = RandomValues(tokens * n, seed);
  std::vector<float> gram(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i; j < n; ++j) {
      double sum = 0;
      for (size_t t = 0; t < tokens; ++t) sum += double{x[t * n + i]} * double{x[t * n + j]};
      gram[i * n + j] = gram[j * n + i] = static_cast<float>(sum);
    }
  }
  return gram;
}

std::string BytesOf(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

v1::TensorSpec Spec(v1::TensorKind kind, v1::DataType dtype, int64_t rows, int64_t cols) {
  v1::TensorSpec spec;
  spec.set_kind(kind);
  spec.set_dtype(dtype);
  spec.add_dims(rows);
  spec.add_dims(cols);
  return spec;
}

v1::Chunk MakeChunk(const std::string& bytes, int64_t offset, int64_t size) {
  v1::Chunk chunk;
  chunk.set_offset(offset);
  chunk.set_data(bytes.substr(static_cast<size_t>(offset), static_cast<size_t>(size)));
  chunk.set_crc32c(Crc32c(std::as_bytes(std::span(chunk.data()))));
  return chunk;
}

ServerConfig TestConfig() {
  ServerConfig config;
  config.listen = "127.0.0.1:0";
  config.metrics_listen = "127.0.0.1:0";
  config.store = "memory";
  config.tensors.budget_bytes = int64_t{256} << 20;
  return config;
}

TestServer::TestServer(ServerConfig config) {
  std::string pattern = (std::filesystem::temp_directory_path() / "sparsefw-rpc-XXXXXX").string();
  dir = mkdtemp(pattern.data());
  if (config.state_dir.empty()) {
    config.listen = "127.0.0.1:0";
    config.metrics_listen = "127.0.0.1:0";
    config.state_dir = dir;
    config.tensors.spool_dir = dir + "/spool";
  }
  absl::StatusOr<std::unique_ptr<Server>> started = Server::Start(config, &logger);
  if (!started.ok()) {
    ADD_FAILURE() << started.status();
    std::abort();
  }
  server = *std::move(started);
  tensors = v1::TensorService::NewStub(Connect());
  jobs = v1::PruneService::NewStub(Connect());
}

TestServer::~TestServer() {
  tensors.reset();
  jobs.reset();
  server.reset();
  std::filesystem::remove_all(dir);
}

std::shared_ptr<grpc::Channel> TestServer::Connect() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(server->address(), grpc::InsecureChannelCredentials(),
                                   arguments);
}

grpc::Status TestServer::TryUpload(const v1::TensorSpec& spec, const std::string& bytes,
                                   v1::Tensor* tensor) {
  constexpr int64_t kChunk = 1 << 20;
  grpc::ClientContext context;
  v1::WriteTensorResponse response;
  const auto writer = tensors->WriteTensor(&context, &response);
  const auto size = static_cast<int64_t>(bytes.size());
  for (int64_t offset = 0; offset < size; offset += kChunk) {
    v1::WriteTensorRequest request;
    if (offset == 0) *request.mutable_spec() = spec;
    *request.mutable_chunk() = MakeChunk(bytes, offset, std::min(kChunk, size - offset));
    request.set_finish(offset + kChunk >= size);
    if (!writer->Write(request)) break;
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  *tensor = response.tensor();
  return status;
}

std::string TestServer::Upload(const v1::TensorSpec& spec, const std::string& bytes) {
  v1::Tensor tensor;
  const grpc::Status status = TryUpload(spec, bytes, &tensor);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return tensor.name();
}

std::string TestServer::UploadWeight(int64_t rows, int64_t cols, uint32_t seed) {
  return Upload(Spec(v1::TENSOR_KIND_WEIGHT, v1::DATA_TYPE_F32, rows, cols),
                BytesOf(RandomValues(static_cast<size_t>(rows * cols), seed)));
}

std::string TestServer::UploadGram(int64_t d_in, uint32_t seed) {
  return Upload(Spec(v1::TENSOR_KIND_GRAM, v1::DATA_TYPE_F32, d_in, d_in),
                BytesOf(RandomGram(d_in, seed)));
}

v1::JobSpec TestServer::Layer(int64_t rows, int64_t cols, int64_t iterations) {
  v1::JobSpec spec;
  spec.set_weight(UploadWeight(rows, cols));
  spec.set_gram(UploadGram(cols));
  spec.set_method(v1::METHOD_SPARSEFW);
  spec.mutable_pattern()->mutable_per_row()->set_sparsity(0.5);
  spec.mutable_sparsefw()->set_iterations(iterations);
  spec.mutable_sparsefw()->set_report_every(10);
  return spec;
}

grpc::Status TestServer::CreateJob(const v1::JobSpec& spec, v1::Job* job) {
  grpc::ClientContext context;
  v1::CreateJobRequest request;
  *request.mutable_spec() = spec;
  return jobs->CreateJob(&context, request, job);
}

v1::Job TestServer::MustCreate(const v1::JobSpec& spec) {
  v1::Job job;
  const grpc::Status status = CreateJob(spec, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job;
}

v1::Job TestServer::GetJob(const std::string& name) {
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_name(name);
  v1::Job job;
  const grpc::Status status = jobs->GetJob(&context, request, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job;
}

v1::Job TestServer::WaitForEnd(const std::string& name) {
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name(name);
  const auto reader = jobs->WatchJob(&context, request);
  v1::JobEvent event;
  v1::Job last;
  while (reader->Read(&event)) last = event.job();
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return last;
}

void TestServer::WaitUntilRunning(const std::string& name) {
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name(name);
  const auto reader = jobs->WatchJob(&context, request);
  v1::JobEvent event;
  while (reader->Read(&event)) {
    if (event.job().state() != v1::JOB_STATE_QUEUED) break;
  }
  EXPECT_EQ(event.job().state(), v1::JOB_STATE_RUNNING);
  context.TryCancel();
  reader->Finish();
}

grpc::Status TestServer::Cancel(const std::string& name) {
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_name(name);
  v1::Job job;
  return jobs->CancelJob(&context, request, &job);
}

std::string TestServer::Read(const std::string& tensor) {
  grpc::ClientContext context;
  v1::ReadTensorRequest request;
  request.set_name(tensor);
  const auto reader = tensors->ReadTensor(&context, request);
  v1::ReadTensorResponse response;
  std::string bytes;
  while (reader->Read(&response)) {
    EXPECT_EQ(response.chunk().offset(), static_cast<int64_t>(bytes.size()));
    EXPECT_EQ(response.chunk().crc32c(), Crc32c(std::as_bytes(std::span(response.chunk().data()))));
    bytes += response.chunk().data();
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return bytes;
}

}  // namespace sparsefw::server
