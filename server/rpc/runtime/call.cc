#include "server/rpc/runtime/call.h"

#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "core/src/base/traceparent.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_context.h"
#include "server/identity/certificate.h"
#include "server/net/peer_address.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/steady_time.h"

namespace sparsefw::server {
namespace {

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

void AddCertificate(const grpc::AuthContext& peer, Credentials* credentials) {
  const auto pem = peer.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (pem.empty()) return;
  credentials->has_certificate = true;
  for (const grpc::string_ref& uri : peer.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    credentials->uris.emplace_back(uri.data(), uri.size());
  }
  const auto names = peer.FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
  if (names.size() == 1) credentials->common_name = std::string(View(names.front()));
  // It was valid when the connection began, and the connection may be old.
  const auto facts = ReadCertificates(View(pem.front()));
  credentials->certificate_expiry = facts.ok() ? facts->not_after : absl::InfinitePast();
}

// Who calls. Asked for every call: what gRPC's AuthContext holds is of the whole
// connection, and an AuthMetadataProcessor that adds to it passes the identity of
// one call on to the next. Errors: Authenticator's.
absl::StatusOr<Identity> Authenticate(const Authenticator& authenticator,
                                      const grpc::ServerContextBase& rpc) {
  if (!authenticator.active()) return Identity();
  Credentials credentials;
  const auto [begin, end] = rpc.client_metadata().equal_range("authorization");
  for (auto entry = begin; entry != end; ++entry) {
    credentials.authorization.push_back(View(entry->second));
  }
  if (const std::shared_ptr<const grpc::AuthContext> peer = rpc.auth_context()) {
    AddCertificate(*peer, &credentials);
  }
  return authenticator.Authenticate(credentials, absl::Now());
}

// Whose limits a call comes under where nobody needs credentials: the text of PeerKeyOf, or
// `peer`, gRPC's name, where that is no address.
std::string AddressKey(std::string_view peer) {
  const std::optional<PeerAddress> address = ParsePeerAddress(peer);
  if (!address) return std::string(peer);
  const PeerKey key = PeerKeyOf(*address);
  return absl::BytesToHexString({reinterpret_cast<const char*>(key.data()), key.size()});
}

// The value of the call's header `traceparent`; empty without one, with several, and
// with anything that IsTraceparent refuses.
std::string TraceparentOf(const grpc::ServerContextBase& rpc) {
  const auto [begin, end] = rpc.client_metadata().equal_range("traceparent");
  if (begin == end || std::next(begin) != end) return "";
  const std::string_view value = View(begin->second);
  return IsTraceparent(value) ? std::string(value) : "";
}

}  // namespace

std::shared_ptr<Connection> ConnectionOf(const Connections* connections,
                                         const grpc::CallbackServerContext& rpc) {
  const std::optional<PeerAddress> address = ParsePeerAddress(rpc.peer());
  std::shared_ptr<Connection> found =
      address && connections != nullptr ? connections->Find(*address) : nullptr;
  return found != nullptr ? found : Connection::Unlimited();
}

Call::Call(RpcContext& context, std::string_view method, grpc::CallbackServerContext* rpc)
    : context_(context),
      method_(method),
      rpc_(rpc),
      start_(SteadyNow()),
      connection_(ConnectionOf(context.connections, *rpc)) {
  context_.metrics->RpcStarted(method_);
}

bool Call::Open() {
  self_ = shared_from_this();
  traceparent_ = TraceparentOf(*rpc_);
  const absl::Status status = FindOutWhoCalls();
  sharer_ = context_.authenticator->active() ? identity_.tenant : AddressKey(rpc_->peer());
  const bool added = context_.registry->Add(self_);
  if (added && status.ok()) return true;
  Close(added ? status : DrainingError());
  return false;
}

absl::Status Call::FindOutWhoCalls() {
  identity_.tenant.clear();
  SPARSEFW_RETURN_IF_ERROR(connection_->Enter());
  absl::StatusOr<Identity> identity = Authenticate(*context_.authenticator, *rpc_);
  if (!identity.ok()) return identity.status();
  identity_ = *std::move(identity);
  return absl::OkStatus();
}

void Call::Recheck() {
  const absl::Status status = context_.authenticator->Recheck(identity_, absl::Now());
  if (!status.ok()) Close(status);
}

void Call::Tick() {
  const Clock::time_point now = Clock::now();
  {
    MutexLock lock(mutex_);
    if (!done_ && closed_ && now - closed_at_ > kUnreadEnd) rpc_->TryCancel();
    if (read_.has_value()) {
      const absl::Status status = connection_->CheckRead(*read_, now);
      if (!status.ok()) CloseLocked(status);
    }
    if (closed_) return;
  }
  OnTick(now);
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
  {
    MutexLock lock(mutex_);
    done_ = true;
  }
  connection_->Leave();
  context_.registry->Remove(this);
  // The last reference may be this one.
  const std::shared_ptr<Call> self = std::move(self_);
}

void Call::Queue(Executor& executor, Executor::Entry entry, Executor::Work work) {
  MutexLock lock(mutex_);
  if (closed_) return;
  const absl::StatusOr<Executor::TaskId> task =
      executor.Post(sharer_, entry, [self = shared_from_this(), work = std::move(work)] {
        if (!self->IsClosed()) return self->RunGuarded(work);
        self->DropWork();
        return false;
      });
  if (!task.ok()) return CloseLocked(task.status());
  executor_ = &executor;
  task_ = *task;
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
  ended_.Request();
  closed_at_ = Clock::now();
  if (executor_ != nullptr) executor_->Withdraw(sharer_, task_);
  // A read that fails because the client is gone looks like a half-close.
  const absl::Status seen = rpc_->IsCancelled() ? WhyCancelled() : status;
  Record(seen);
  FinishRpc(seen);
}

void Call::Record(const absl::Status& status) {
  const absl::Duration duration = SteadyNow() - start_;
  context_.metrics->RpcEnded(method_, status.code(), duration);
  if (!context_.log) return;
  context_.log({method_, status, duration, rpc_->peer(), identity_.tenant, subject_, traceparent_});
}

}  // namespace sparsefw::server
