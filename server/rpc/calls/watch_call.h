// PruneService.WatchJob.
#ifndef SPARSEFW_SERVER_RPC_CALLS_WATCH_CALL_H_
#define SPARSEFW_SERVER_RPC_CALLS_WATCH_CALL_H_

#include <chrono>
#include <memory>
#include <string>

#include "server/jobs/event_queue.h"
#include "server/rpc/runtime/call.h"
#include "sparsefw/v1/prune_service.pb.h"

namespace sparsefw::server {

// At most one write is in progress; later events wait in the queue.
class WatchCall final : public grpc::ServerWriteReactor<v1::JobEvent>, public Call {
 public:
  WatchCall(RpcContext& context, grpc::CallbackServerContext* rpc);
  ~WatchCall() override;
  void Start(const v1::WatchJobRequest& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { Cancelled(); }
  void OnDone() override { Done(); }

 private:
  using Clock = std::chrono::steady_clock;

  std::weak_ptr<WatchCall> Weak();
  absl::Status Watch(const v1::WatchJobRequest& request);
  void Pump();
  void Heartbeat();
  void ScheduleHeartbeat(std::chrono::nanoseconds delay);
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishRpc(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  std::chrono::nanoseconds interval_{};
  std::shared_ptr<EventQueue> events_ ABSL_GUARDED_BY(mutex_);  // null: not watching yet
  v1::JobEvent event_ ABSL_GUARDED_BY(mutex_);
  std::string told_mask_ ABSL_GUARDED_BY(mutex_);  // by the write in progress; "": none
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  Clock::time_point last_write_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CALLS_WATCH_CALL_H_
