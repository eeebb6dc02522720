// PruneService.WatchJob.
#ifndef SPARSEFW_SERVER_RPC_JOBS_WATCH_CALL_H_
#define SPARSEFW_SERVER_RPC_JOBS_WATCH_CALL_H_

#include <chrono>
#include <memory>
#include <string>

#include "server/jobs/event_queue.h"
#include "server/rpc/runtime/one_request_call.h"
#include "sparsefw/v1/prune_service.pb.h"

namespace sparsefw::server {

// Only one write is in progress at a time; later events wait in the queue.
class WatchCall final : public OneRequestCall<v1::WatchJobRequest, v1::JobEvent> {
 public:
  WatchCall(RpcContext& context, grpc::CallbackServerContext* rpc);
  ~WatchCall() override;

  void OnWriteDone(bool ok) override;

 private:
  void Begin() override;
  absl::Status Watch();
  void Pump();
  void Heartbeat();
  void ScheduleHeartbeat(std::chrono::nanoseconds delay);
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishRpc(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  std::chrono::nanoseconds interval_{};
  std::shared_ptr<EventQueue> events_ ABSL_GUARDED_BY(mutex_);  // null: not watching yet
  JobEvent last_ ABSL_GUARDED_BY(mutex_);          // that was written; what a heartbeat repeats
  v1::JobEvent event_ ABSL_GUARDED_BY(mutex_);     // of the write in progress
  HeldBytes held_ ABSL_GUARDED_BY(mutex_);         // for it
  std::string sent_mask_ ABSL_GUARDED_BY(mutex_);  // by the write in progress; "": none
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  Clock::time_point last_write_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_JOBS_WATCH_CALL_H_
