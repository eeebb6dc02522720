// PruneService.WatchJob.
#ifndef SPARSEFW_SERVER_RPC_CALLS_WATCH_CALL_H_
#define SPARSEFW_SERVER_RPC_CALLS_WATCH_CALL_H_

#include <chrono>
#include <memory>

#include "server/rpc/calls/job_feed.h"
#include "server/rpc/runtime/call.h"
#include "sparsefw/v1/prune_service.pb.h"

namespace sparsefw::server {

// One write under way at any time; what happens meanwhile waits in the feed.
class WatchCall final : public grpc::ServerWriteReactor<v1::JobEvent>, public Call {
 public:
  WatchCall(RpcContext& context, grpc::CallbackServerContext* rpc);
  ~WatchCall() override;
  void Start(const v1::WatchJobRequest& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { Cancelled(); }
  void OnDone() override;

 private:
  using Clock = std::chrono::steady_clock;

  absl::Status Watch(const v1::WatchJobRequest& request);
  void Pump();
  void Heartbeat();
  void ScheduleHeartbeat(std::chrono::nanoseconds delay);
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishRpc(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  std::chrono::nanoseconds interval_{};
  std::shared_ptr<JobFeed> feed_;
  int64_t watch_id_ = -1;  // -1: not watching
  v1::JobEvent event_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  Clock::time_point last_write_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CALLS_WATCH_CALL_H_
