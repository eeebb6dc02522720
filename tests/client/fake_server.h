// A server that does what it is told, for tests of the client: it stores
// tensors in memory, follows a script of faults, and remembers what came.
#ifndef SPARSEFW_TESTS_CLIENT_FAKE_SERVER_H_
#define SPARSEFW_TESTS_CLIENT_FAKE_SERVER_H_

#include <grpcpp/server.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sparsefw/mutex.h"
#include "sparsefw/v1/prune_service.grpc.pb.h"
#include "sparsefw/v1/tensor_service.grpc.pb.h"

namespace sparsefw::client::testing {

// An error as the server sends it: with ErrorInfo, and RetryInfo if `retry_delay_ms` >= 0.
grpc::Status Error(grpc::StatusCode code, const std::string& message, const std::string& reason,
                   const std::map<std::string, std::string>& metadata = {},
                   int64_t retry_delay_ms = -1);

// A fault of one upload stream: it ends with `status` as soon as `after`
// units (bytes or tokens, in all) are committed. With after == the total the
// upload is finished first: the answer is lost, not the data.
struct StreamFault {
  int64_t after = 0;
  grpc::Status status;
};

// A fault of one ReadTensor stream: it ends with `status` after `after`
// bytes in all; or (corrupt) the chunk that holds byte `after` is damaged.
struct ReadFault {
  int64_t after = 0;
  bool corrupt = false;
  grpc::Status status;
};

// Thread-safe.
class FakeTensorService final : public v1::TensorService::Service {
 public:
  // Unary answers, one each, before the calls work.
  std::deque<grpc::Status> create_faults;
  std::deque<grpc::Status> get_upload_faults;
  std::deque<StreamFault> stream_faults;
  std::deque<ReadFault> read_faults;
  int64_t read_chunk_bytes = 1000;
  // What a hostile server does: what it says of a tensor, instead of the truth; chunks of no bytes
  // without end; and nothing at all, until the client leaves.
  std::function<void(v1::Tensor*)> describe;
  bool empty_chunks = false;
  int silent_reads = 0;
  // Called when an upload is made, before the answer.
  std::function<void(grpc::ServerContext*)> on_create;

  // Calls that came.
  int streams = 0;
  int get_uploads = 0;
  std::vector<int64_t> first_offsets;  // of every upload stream
  std::vector<int64_t> chunk_sizes;    // of all upload messages
  std::vector<int64_t> read_offsets;
  std::vector<std::string> create_request_ids;
  std::vector<std::string> deleted;  // uploads and tensors
  // The upload or tensor is deleted, the answer is lost.
  int lost_deletes = 0;

  // Drops every upload and tensor, as a restart does.
  void Forget();
  // Makes a tensor; returns its name.
  std::string Put(const v1::TensorSpec& spec, const std::string& bytes);
  std::string Bytes(const std::string& tensor);
  // Uploads and tensors that are there.
  size_t left();

  grpc::Status CreateUpload(grpc::ServerContext* context, const v1::CreateUploadRequest* request,
                            v1::CreateUploadResponse* response) override;
  grpc::Status WriteTensor(grpc::ServerContext*, grpc::ServerReader<v1::WriteTensorRequest>* reader,
                           v1::WriteTensorResponse* response) override;
  grpc::Status AccumulateGram(grpc::ServerContext*,
                              grpc::ServerReader<v1::AccumulateGramRequest>* reader,
                              v1::AccumulateGramResponse* response) override;
  grpc::Status GetUpload(grpc::ServerContext*, const v1::GetUploadRequest* request,
                         v1::Upload* upload) override;
  grpc::Status DeleteUpload(grpc::ServerContext*, const v1::DeleteUploadRequest* request,
                            google::protobuf::Empty*) override;
  grpc::Status GetTensor(grpc::ServerContext*, const v1::GetTensorRequest* request,
                         v1::Tensor* tensor) override;
  grpc::Status DeleteTensor(grpc::ServerContext*, const v1::DeleteTensorRequest* request,
                            google::protobuf::Empty*) override;
  grpc::Status ReadTensor(grpc::ServerContext* context, const v1::ReadTensorRequest* request,
                          grpc::ServerWriter<v1::ReadTensorResponse>* writer) override;

 private:
  grpc::Status MakeUpload(const v1::CreateUploadRequest* request,
                          v1::CreateUploadResponse* response);
  struct Upload {
    v1::CreateUploadRequest request;
    std::string bytes;  // committed; activations are kept, not summed
  };
  struct Stored {
    v1::Tensor tensor;
    std::string bytes;
  };
  // One message of a stream: `offset` in units of `unit` bytes. OK and
  // committed, or how the stream ends.
  grpc::Status Commit(const std::string& upload, int64_t offset, int64_t unit,
                      const std::string& key, uint32_t crc32c, const std::string& data,
                      const std::optional<StreamFault>& fault)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Tensor FinishUpload(const std::string& upload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<StreamFault> NextStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string NewName(const std::string& folder) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Tensor Store(const v1::TensorSpec& spec, const std::string& bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  int next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<std::string, std::string> requests_ ABSL_GUARDED_BY(mutex_);  // id -> upload or tensor
  std::map<std::string, Upload> uploads_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Stored> tensors_ ABSL_GUARDED_BY(mutex_);
};

// Waits until the client has left.
void AwaitCancelled(grpc::ServerContext* context);

// One WatchJob stream: these events, then the status.
struct WatchScript {
  std::vector<v1::JobEvent> events;
  grpc::Status status;
  bool silent = false;  // after the events nothing comes until the client leaves
};

class FakePruneService final : public v1::PruneService::Service {
 public:
  std::deque<grpc::Status> create_faults;
  // The job is made, the answer is lost.
  int lost_creates = 0;
  // The job is deleted, the answer is lost.
  int lost_deletes = 0;
  // The job is made, the answer takes longer than the client waits.
  int late_creates = 0;
  std::deque<WatchScript> watches;
  // The answers of Prune, and how the stream ends.
  std::vector<v1::PruneResponse> prune_responses;
  grpc::Status prune_status;

  grpc::Status check_status;  // what CheckJobOptions answers

  std::vector<v1::CreateJobRequest> created;  // every attempt
  std::vector<v1::CheckJobOptionsRequest> checked;
  std::vector<int64_t> watched_after;  // after_revision of every WatchJob
  std::vector<int64_t> heartbeats_ms;  // and the interval it asked for
  std::vector<std::string> cancelled;
  std::vector<v1::PruneRequest> pruned;
  std::vector<int32_t> page_sizes;
  std::map<std::string, v1::Job> jobs;
  // Instead of them: gives the page of this number, from 0.
  std::function<void(int, v1::ListJobsResponse*)> list;

  grpc::Status CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                         v1::Job* job) override;
  grpc::Status CheckJobOptions(grpc::ServerContext*, const v1::CheckJobOptionsRequest* request,
                               v1::CheckJobOptionsResponse*) override;
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::Job* job) override;
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                         v1::Job* job) override;
  grpc::Status DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                         google::protobuf::Empty*) override;
  grpc::Status WatchJob(grpc::ServerContext*, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::JobEvent>* writer) override;
  grpc::Status Prune(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::PruneResponse, v1::PruneRequest>* stream) override;
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* info) override;

 private:
  std::map<std::string, std::string> requests_;
};

// Both services on a loopback port of their own.
class FakeServer {
 public:
  FakeServer();
  ~FakeServer();
  std::string address() const;
  // Breaks every connection. Start() listens on the same port again.
  void Stop();
  void Start();

  FakeTensorService tensors;
  FakePruneService jobs;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace sparsefw::client::testing

#endif  // SPARSEFW_TESTS_CLIENT_FAKE_SERVER_H_
