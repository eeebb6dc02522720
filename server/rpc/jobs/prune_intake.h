// The first half of a Prune call: from its messages to a queued job.
#ifndef SPARSEFW_SERVER_RPC_JOBS_PRUNE_INTAKE_H_
#define SPARSEFW_SERVER_RPC_JOBS_PRUNE_INTAKE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/identity/owner.h"
#include "server/jobs/job.h"
#include "server/rpc/runtime/rpc_context.h"
#include "server/rpc/tensors/upload_sink.h"
#include "sparsefw/v1/prune_service.pb.h"

namespace sparsefw::server {

// The tensors go through the sinks of the upload calls, the job through
// JobManager::Submit. Used by one thread at a time; may touch the disk.
class PruneIntake {
 public:
  explicit PruneIntake(RpcContext& context)
      : context_(context),
        weight_{"weight", UploadSink(context)},
        gram_{"gram", UploadSink(context)},
        activations_{"activations", UploadSink(context)} {}

  // Who owns what comes, and the trace of the call; before the first message.
  void SetCaller(const std::string& tenant, const std::string& traceparent) {
    owner_.tenant = tenant;
    traceparent_ = traceparent;
  }

  // The chunk in the message; an empty one where it has none.
  static const v1::Chunk& ChunkOf(const v1::PruneRequest& request);

  // Takes a message. True: all that the header announced is there.
  absl::StatusOr<bool> Take(const v1::PruneRequest& request);
  // The client has closed its half. Errors: InvalidArgument  something is
  // missing (STREAM_INCOMPLETE)
  absl::Status EndOfStream() const;
  // Makes the tensors of what was received.
  absl::Status Finish();
  // Queues the job; after Finish.
  absl::StatusOr<Job> Submit();
  // Drops what was received and belongs to no job.
  void Abandon();

  // Its chunks are summed.
  bool sums() const { return activations_.upload.open(); }
  bool detach() const { return header_.detach(); }

 private:
  // A tensor that comes in this stream, if its upload is open.
  struct Part {
    std::string_view what;
    UploadSink upload;
    int64_t expected = 0;  // bytes; of activations tokens
  };

  absl::Status TakeHeader(const v1::PruneHeader& header);
  absl::Status CheckEarly() const;
  absl::Status TakeChunk(Part& part, const v1::Chunk& chunk);
  // Null: all that the header announced is there.
  const Part* FirstIncomplete() const;
  absl::Status Finish(Part& part, std::string* tensor);

  RpcContext& context_;
  Owner owner_;
  std::string traceparent_;
  bool has_header_ = false;
  v1::PruneHeader header_;
  JobSpec spec_;
  Part weight_;
  Part gram_;
  Part activations_;
  bool taken_ = false;  // by a job
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_JOBS_PRUNE_INTAKE_H_
