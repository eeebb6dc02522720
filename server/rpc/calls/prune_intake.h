// The first half of a Prune call: from its messages to a queued job.
#ifndef SPARSEFW_SERVER_RPC_CALLS_PRUNE_INTAKE_H_
#define SPARSEFW_SERVER_RPC_CALLS_PRUNE_INTAKE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/job.h"
#include "server/rpc/runtime/rpc_context.h"
#include "sparsefw/v1/prune_service.pb.h"

namespace sparsefw::server {

// Does what CreateUpload, WriteTensor, AccumulateGram and CreateJob do, on the
// same store and manager. Used by one thread at a time; may touch the disk.
class PruneIntake {
 public:
  explicit PruneIntake(RpcContext& context) : context_(context) {}

  // Takes a message. True: all that the header announced is there.
  absl::StatusOr<bool> Take(const v1::PruneRequest& request);
  // The client has closed its half. Errors: InvalidArgument  something is
  // missing (STREAM_INCOMPLETE)
  absl::Status EndOfStream();
  // Queues the job.
  absl::StatusOr<Job> Submit();
  // Drops what was received and belongs to no job.
  void Abandon();

  bool detach() const { return header_.detach(); }

 private:
  // A tensor that comes in this stream.
  struct Input {
    std::string upload;  // empty: none is awaited
    int64_t byte_size = 0;
    int64_t committed = 0;
    bool awaited() const { return !upload.empty() && committed < byte_size; }
  };

  absl::Status TakeHeader(const v1::PruneHeader& header);
  absl::Status OpenInputs();
  absl::Status CheckEarly(const JobSpec& spec) const;
  absl::Status TakeChunk(Input* input, std::string_view name, const v1::Chunk& chunk);
  absl::Status TakeActivations(const v1::Chunk& chunk);
  absl::StatusOr<std::string> Complete(const Input& input);
  bool Complete() const;

  RpcContext& context_;
  bool has_header_ = false;
  v1::PruneHeader header_;
  JobSpec spec_;
  Input weight_;
  Input gram_;
  std::string activations_;  // the upload's name
  int64_t token_bytes_ = 0;
  int64_t activation_tokens_ = 0;
  bool taken_ = false;  // by a job
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CALLS_PRUNE_INTAKE_H_
