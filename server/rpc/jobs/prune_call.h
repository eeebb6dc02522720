// PruneService.Prune: the whole of it in one call.
#ifndef SPARSEFW_SERVER_RPC_JOBS_PRUNE_CALL_H_
#define SPARSEFW_SERVER_RPC_JOBS_PRUNE_CALL_H_

#include <memory>
#include <optional>
#include <string>

#include "server/jobs/event_queue.h"
#include "server/rpc/jobs/prune_intake.h"
#include "server/rpc/tensors/chunk_reader.h"
#include "server/rpc/tensors/intake_call.h"
#include "sparsefw/v1/prune_service.pb.h"

namespace sparsefw::server {

//   intake:  header and chunks in          (PruneIntake)
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

  std::shared_ptr<PruneCall> Self();
  void Opened() override { intake_.SetCaller(tenant(), traceparent()); }
  int64_t DataBytes(const v1::PruneRequest& request) const override;
  absl::Status Take(const v1::PruneRequest& request) override;
  absl::Status TakeEnd() override;
  absl::Status FinishIntake();
  absl::Status Submit();
  void PostPump();
  void Pump();
  // Fills wire_. False: nothing to write now.
  absl::StatusOr<bool> NextResponse();
  absl::StatusOr<bool> NextChunk(const std::string& tensor, Stage next, int field);
  // Errors: CallShare::Hold's.
  absl::Status SetWire(const v1::PruneResponse& response);
  void CleanUp() override;
  void FinishRpc(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  PruneIntake intake_;
  Stage stage_ = Stage::kIntake;
  std::shared_ptr<EventQueue> events_;
  std::string job_;  // empty: not accepted yet
  std::optional<ChunkReader> reader_;
  bool writing_ = false;
  grpc::ByteBuffer wire_;  // the response; also used by the write under way
  HeldBytes held_;         // for it
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_JOBS_PRUNE_CALL_H_
