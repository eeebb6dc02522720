// PruneService.Prune: the whole of it in one call.
#ifndef SPARSEFW_SERVER_RPC_CALLS_PRUNE_CALL_H_
#define SPARSEFW_SERVER_RPC_CALLS_PRUNE_CALL_H_

#include <memory>
#include <optional>
#include <string>

#include "server/rpc/calls/chunk_reader.h"
#include "server/rpc/calls/job_feed.h"
#include "server/rpc/calls/prune_intake.h"
#include "server/rpc/runtime/call.h"
#include "server/rpc/runtime/staged_stream.h"
#include "sparsefw/v1/prune_service.pb.h"

namespace sparsefw::server {

//   intake:  header and chunks in          (PruneIntake)
//   output:  Accepted, events, mask chunks, pruned-weight chunks, final job
//
// Everything but gRPC's own callbacks runs on one strand of the executor, in
// order, so the members below need no lock but where gRPC's calls are made.
class PruneCall final : public grpc::ServerBidiReactor<v1::PruneRequest, v1::PruneResponse>,
                        public Call,
                        private StagedStream<v1::PruneRequest>::Owner {
 public:
  PruneCall(RpcContext& context, grpc::CallbackServerContext* rpc);
  void Start();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override { Cancelled(); }
  void OnDone() override;
  void OnDrain() override;

 private:
  enum class Stage { kIntake, kEvents, kMask, kPrunedWeight, kFinal, kDone };

  std::shared_ptr<PruneCall> Self();
  bool IsClosed() ABSL_LOCKS_EXCLUDED(mutex_);
  void StartReadIfOpen(v1::PruneRequest* request) override;
  void Handle(const v1::PruneRequest& request) override;
  void HandleEnd();
  void Submit();
  void PostPump();
  void Pump();
  // Fills response_. False: nothing to write now.
  absl::StatusOr<bool> NextResponse();
  absl::StatusOr<bool> NextChunk(const std::string& tensor, Stage next, bool mask);
  void CleanUp();
  void FinishRpc(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  PruneIntake intake_;
  StagedStream<v1::PruneRequest> stream_;
  Stage stage_ = Stage::kIntake;
  std::shared_ptr<JobFeed> feed_;
  std::string job_;  // empty: not accepted yet
  int64_t watch_id_ = -1;
  std::optional<ChunkReader> reader_;
  bool writing_ = false;
  v1::PruneResponse response_;  // also used by the write under way
  bool accepted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CALLS_PRUNE_CALL_H_
