// A unary RPC.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_UNARY_CALL_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_UNARY_CALL_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/rpc/runtime/executor.h"
#include "server/rpc/runtime/one_request_call.h"

namespace sparsefw::server {

// Whom a call acts for, its trace (empty: none), and whether it has ended.
struct UnaryCaller {
  const std::string& tenant;
  const std::string& traceparent;
  const StopSignal& ended;
};

template <typename Request, typename Response>
class UnaryCall final : public OneRequestCall<Request, Response> {
 public:
  // Nothing: a piece of it is done, and more is to be.
  using Result = std::optional<absl::StatusOr<Response>>;
  // Each call has a copy of its own, which may keep what is between two pieces.
  using Work = std::function<Result(const UnaryCaller& caller, const Request& request)>;

  // `executor`: null to run `work` at once.
  UnaryCall(RpcContext& context, std::string_view method, grpc::CallbackServerContext* rpc,
            Executor* executor, Work work)
      : UnaryCall::OneRequestCall(context, method, rpc),
        executor_(executor),
        work_(std::move(work)) {}

 private:
  void Begin() override {
    if (executor_ == nullptr) return Complete(*Run());
    this->Queue(*executor_, Executor::Entry::kNew, [this] {
      Result result = Run();
      if (!result.has_value()) return true;
      work_ = nullptr;  // what it kept is not the client's to hold until it reads
      Complete(*std::move(result));
      return false;
    });
  }
  void DropWork() override { work_ = nullptr; }
  Result Run() {
    return work_({this->tenant(), this->traceparent(), this->ended()}, this->request());
  }
  void Complete(absl::StatusOr<Response> result) {
    if (result.ok()) result = Holding(*std::move(result));
    MutexLock lock(this->mutex_);
    if (this->closed()) return;
    if (result.ok()) {
      this->AddSubjectLocked({"", ResourceOf(*result)});
      response_ = *std::move(result);
    }
    this->CloseLocked(result.status());
  }
  // Itself and as gRPC sends it, until the client has read it.
  absl::StatusOr<Response> Holding(Response response) {
    const auto bytes = static_cast<int64_t>(response.ByteSizeLong());
    SPARSEFW_ASSIGN_OR_RETURN(held_, this->connection().HoldResponse(bytes, 2));
    return response;
  }
  void FinishRpc(const absl::Status& status) override {
    if (!status.ok()) return this->Finish(ToGrpcStatus(status));
    this->StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }

  Executor* const executor_;
  Work work_;
  Response response_;
  HeldBytes held_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_UNARY_CALL_H_
