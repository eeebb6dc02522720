// PruneService.Prune: the whole of it in one call.
#ifndef SPARSEFW_SERVER_RPC_JOBS_PRUNE_CALL_H_
#define SPARSEFW_SERVER_RPC_JOBS_PRUNE_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/identity/owner.h"
#include "server/jobs/event_queue.h"
#include "server/jobs/job.h"
#include "server/rpc/tensors/chunk_reader.h"
#include "server/rpc/tensors/intake_call.h"
#include "server/rpc/tensors/upload_sink.h"
#include "sparsefw/v1/prune_service.pb.h"

namespace sparsefw::server {

//   intake:  header and chunks in, until a job is queued. The tensors go through the sinks of the
//            upload calls, the job through JobManager::Submit.
//   output:  Accepted, events, mask chunks, pruned-weight chunks, final job
//
// Everything but gRPC's own callbacks runs on the strand of the intake, in
// order, so the members below need a lock only where gRPC is called.
class PruneCall final
    : public IntakeCall<grpc::ServerBidiReactor<v1::PruneRequest, grpc::ByteBuffer>,
                        v1::PruneRequest> {
 public:
  PruneCall(RpcContext& context, grpc::CallbackServerContext* rpc);

  void OnWriteDone(bool ok) override;
  void OnDrain() override;

 private:
  enum class Stage { kIntake, kSubmit, kEvents, kMask, kPrunedWeight, kFinal, kDone };

  // A tensor that comes in this stream, if its upload is open.
  struct Part {
    std::string_view what;
    UploadSink upload;
    int64_t expected = 0;     // bytes; of activations tokens
    std::string tensor = {};  // its name, once the upload is finished
  };

  // Intake.
  int64_t DataBytes(const v1::PruneRequest& request) const override;
  absl::Status Take(const v1::PruneRequest& request) override;
  absl::Status TakeMessage(const v1::PruneRequest& request);
  absl::Status TakeHeader(const v1::PruneHeader& header);
  absl::Status CheckEarly();
  absl::Status TakeChunk(Part& part, const v1::Chunk& chunk);
  // Null: all that the header announced is there.
  const Part* FirstIncomplete() const;
  // Errors: InvalidArgument  something is missing (STREAM_INCOMPLETE)
  absl::Status TakeEnd() override;
  // Makes the tensors of what was received, then queues the job on another thread.
  absl::Status FinishIntake();
  absl::Status FinishPart(Part& part, std::string* tensor);
  absl::StatusOr<Job> Submit();
  Owner owner() const { return {tenant(), header_.owner()}; }

  // Output.
  absl::Status Accept();
  void Pump();
  // Fills wire_. False: nothing to write now.
  absl::StatusOr<bool> NextResponse();
  absl::StatusOr<bool> NextChunk(const std::string& tensor, Stage next, int field);
  // Errors: Connection::Hold's.
  absl::Status SetWire(const v1::PruneResponse& response);
  void CleanUp() override;
  void FinishRpc(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  Stage stage_ = Stage::kIntake;

  bool has_header_ = false;
  v1::PruneHeader header_;  // without unknown fields, which count for digest_
  RequestDigest digest_;
  JobSpec spec_;
  HeldBytes header_held_;  // for both
  Part weight_{"weight", UploadSink(context())};
  Part gram_{"gram", UploadSink(context())};
  Part activations_{"activations", UploadSink(context())};
  bool taken_ = false;  // what was received belongs to a job

  std::shared_ptr<EventQueue> events_;
  std::string job_;     // empty: not accepted yet
  std::string shared_;  // in prune_streams; empty: no other stream can follow the job
  bool sent_away_ ABSL_GUARDED_BY(mutex_) = false;  // by a drain
  std::optional<ChunkReader> reader_;
  bool writing_ = false;
  grpc::ByteBuffer wire_;  // the response; also used by the write under way
  HeldBytes held_;         // for it
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_JOBS_PRUNE_CALL_H_
