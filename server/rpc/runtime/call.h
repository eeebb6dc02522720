// Base of every reactor: finishes the RPC exactly once, registers it, counts it
// and logs it.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_CALL_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_CALL_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "server/identity/authenticator.h"
#include "server/rpc/convert/status_converter.h"
#include "server/rpc/runtime/call_subject.h"
#include "server/rpc/runtime/rpc_context.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// A reactor derives from this and from gRPC's class. Lifetime: gRPC holds a
// plain pointer until OnDone; Open keeps the object alive until then, tasks
// and watchers hold shared pointers and may outlive it.
//
// gRPC never calls back from inside Start* or Finish, so both are called with
// mutex_ held; after closed_ is set none of them is called any more, and the
// server context is not touched.
class Call : public std::enable_shared_from_this<Call> {
 public:
  virtual ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Finishes the RPC unless that has been done.
  void Close(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  // A drain has begun. What would not end by itself closes.
  virtual void OnDrain() {}

  // Closes the call if its credentials no longer hold.
  void Recheck() ABSL_LOCKS_EXCLUDED(mutex_);

 protected:
  Call(RpcContext& context, std::string_view method, grpc::CallbackServerContext* rpc);

  // Finds out who calls and registers. False: the RPC has been finished already (the
  // caller may not, or the server is closed).
  bool Open();
  // For the log line of the call. An empty field leaves that of before.
  void AddSubject(const CallSubject& subject) ABSL_LOCKS_EXCLUDED(mutex_);
  void AddSubjectLocked(const CallSubject& subject) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From OnDone: drops the reference that keeps this object alive.
  void Done();
  // From OnCancel: the client is gone or its deadline has passed.
  void Cancelled();

  bool closed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_; }
  void CloseLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  RpcContext& context() { return context_; }
  std::string_view method() const { return method_; }
  // Whom the call acts for; from Open on.
  const std::string& tenant() const { return identity_.tenant; }
  // Of the call, from Open on; empty: none.
  const std::string& traceparent() const { return traceparent_; }

  Mutex mutex_;

 private:
  // gRPC's Finish.
  virtual void FinishRpc(const absl::Status& status) = 0;
  void Record(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WhyCancelled() const;

  RpcContext& context_;
  const std::string_view method_;
  grpc::CallbackServerContext* const rpc_;
  const absl::Time start_;
  // Written by Open before another thread knows of the call.
  Identity identity_;
  std::string traceparent_;
  CallSubject subject_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Call> self_;
};

// A unary RPC.
template <typename Response>
class UnaryCall final : public grpc::ServerUnaryReactor, public Call {
 public:
  // Gets the tenant whom the call acts for.
  using Work = std::function<absl::StatusOr<Response>(const std::string& tenant)>;

  UnaryCall(RpcContext& context, std::string_view method, grpc::CallbackServerContext* rpc,
            Response* response)
      : Call(context, method, rpc), response_(response) {}

  // Runs `work` on the executor, or at once where that is null.
  void Start(const CallSubject& subject, Executor* executor, Work work) {
    AddSubject(subject);
    if (!Open()) return;
    if (executor == nullptr) return Complete(work(tenant()));
    executor->Post([self = std::static_pointer_cast<UnaryCall>(shared_from_this()),
                    work = std::move(work)] { self->Complete(work(self->tenant())); });
  }

  void OnCancel() override { Cancelled(); }
  void OnDone() override { Done(); }

 private:
  void Complete(absl::StatusOr<Response> result) {
    MutexLock lock(mutex_);
    if (closed()) return;  // response_ may be gone
    if (result.ok()) {
      AddSubjectLocked({"", ResourceOf(*result)});
      *response_ = *std::move(result);
    }
    CloseLocked(result.status());
  }
  void FinishRpc(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  Response* const response_;
};

// A whole handler: `executor` null for what neither waits nor touches the disk.
// `work` must own what it needs of the request.
template <typename Request, typename Response, typename Work>
grpc::ServerUnaryReactor* RunUnary(RpcContext& context, std::string_view method,
                                   grpc::CallbackServerContext* rpc, const Request* request,
                                   Response* response, Executor* executor, Work work) {
  auto call = std::make_shared<UnaryCall<Response>>(context, method, rpc, response);
  call->Start(SubjectOf(*request), executor, std::move(work));
  return call.get();
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_CALL_H_
