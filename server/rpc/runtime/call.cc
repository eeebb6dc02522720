#include "server/rpc/runtime/call.h"

#include "server/metrics/labels.h"
#include "server/rpc/runtime/caller.h"
#include "server/rpc/runtime/traceparent.h"

namespace sparsefw::server {

Call::Call(RpcContext& context, std::string_view method, grpc::CallbackServerContext* rpc)
    : context_(context), method_(method), rpc_(rpc), start_(absl::Now()) {
  context_.metrics->RpcStarted(method_);
}

Call::~Call() = default;

bool Call::Open() {
  self_ = shared_from_this();
  traceparent_ = TraceparentOf(*rpc_);
  absl::StatusOr<Identity> identity = Authenticate(*context_.authenticator, *rpc_);
  if (identity.ok()) {
    identity_ = *std::move(identity);
  } else {
    identity_.tenant.clear();
  }
  const bool added = context_.registry->Add(self_);
  if (added && identity.ok()) return true;
  Close(added ? identity.status() : ReactorRegistry::DrainingError());
  return false;
}

void Call::Recheck() {
  const absl::Status status = context_.authenticator->Recheck(identity_, absl::Now());
  if (!status.ok()) Close(status);
}

void Call::AddSubject(const CallSubject& subject) {
  MutexLock lock(mutex_);
  AddSubjectLocked(subject);
}

void Call::AddSubjectLocked(const CallSubject& subject) {
  if (!subject.request_id.empty()) subject_.request_id = subject.request_id;
  if (!subject.resource.empty()) subject_.resource = subject.resource;
}

void Call::Done() {
  context_.registry->Remove(this);
  // The last reference may be this one.
  const std::shared_ptr<Call> self = std::move(self_);
}

void Call::Close(const absl::Status& status) {
  MutexLock lock(mutex_);
  CloseLocked(status);
}

void Call::Cancelled() {
  MutexLock lock(mutex_);
  if (closed_) return;
  CloseLocked(WhyCancelled());
}

absl::Status Call::WhyCancelled() const {
  return rpc_->deadline() <= std::chrono::system_clock::now()
             ? absl::DeadlineExceededError("the call's deadline has passed")
             : absl::CancelledError("the client has gone or cancelled the call");
}

void Call::CloseLocked(const absl::Status& status) {
  if (closed_) return;
  closed_ = true;
  // A read that fails because the client is gone looks like a half-close.
  const absl::Status seen = rpc_->IsCancelled() ? WhyCancelled() : status;
  Record(seen);
  FinishRpc(seen);
}

void Call::Record(const absl::Status& status) {
  const absl::Duration duration = absl::Now() - start_;
  context_.metrics->RpcEnded(method_, CodeName(status.code()), duration);
  if (!context_.log) return;
  context_.log({method_, status, duration, rpc_->peer(), identity_.tenant, subject_, traceparent_});
}

}  // namespace sparsefw::server
