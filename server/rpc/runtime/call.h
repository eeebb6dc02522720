// Base of every reactor: finishes the RPC exactly once, registers it, counts it
// and logs it.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_CALL_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_CALL_H_

#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "server/identity/authenticator.h"
#include "server/net/connection.h"
#include "server/rpc/convert/status_converter.h"
#include "server/rpc/runtime/executor.h"
#include "server/rpc/runtime/rpc_context.h"
#include "sparsefw/mutex.h"
#include "sparsefw/reason.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw::server {

// That of the call, Unlimited where there is none: `connections` may be null.
std::shared_ptr<Connection> ConnectionOf(const Connections* connections,
                                         const grpc::CallbackServerContext& rpc);

// How long a client may leave the end of its call unread; its response is held that long.
inline constexpr std::chrono::seconds kUnreadEnd(60);

// A reactor derives from this and from gRPC's class. Lifetime: gRPC holds a
// plain pointer until OnDone; Open keeps the object alive until then, tasks
// and watchers hold shared pointers and may outlive it.
//
// gRPC never calls back from inside Start* or Finish, so both are called with
// mutex_ held; after closed_ is set none of them is called any more.
class Call : public std::enable_shared_from_this<Call> {
 public:
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Finishes the RPC unless that has been done.
  void Close(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  // A drain has begun: closes the call if it would not end by itself.
  virtual void OnDrain() {}

  // Closes the call if its credentials no longer hold.
  void Recheck() ABSL_LOCKS_EXCLUDED(mutex_);
  // Once a second: ends what its client leaves undone for too long.
  void Tick() ABSL_LOCKS_EXCLUDED(mutex_);

 protected:
  Call(RpcContext& context, std::string_view method, grpc::CallbackServerContext* rpc);

  // Finds out who calls and registers. False: the RPC has been finished already (the
  // caller may not, has too many calls, or the server is closed).
  bool Open();
  // Sets the subject in the call's log line. An empty field keeps its earlier value.
  void AddSubject(const CallSubject& subject) ABSL_LOCKS_EXCLUDED(mutex_);
  void AddSubjectLocked(const CallSubject& subject) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Called by OnDone: drops the reference that keeps this object alive.
  void Done();
  // Called by OnCancel: the client is gone or its deadline has passed.
  void Cancelled();

  using Clock = std::chrono::steady_clock;
  // Called by Tick, while the call is open.
  virtual void OnTick(Clock::time_point /*now*/) {}

  Connection& connection() { return *connection_; }

  // Around each read of a message: Tick closes a call whose read Connection::CheckRead refuses.
  void ReadBegins() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { read_ = connection_->BeginRead(); }
  void ReadEnds() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    read_.reset();
  }
  // When the wait for a message began; nothing while there is no such wait.
  std::optional<Clock::time_point> read_begin() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return read_.has_value() ? std::optional(read_->begin) : std::nullopt;
  }

  // Requested once the call is closed: for work that looks at it.
  const StopSignal& ended() const { return ended_; }
  bool closed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_; }
  bool IsClosed() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return closed_;
  }
  void CloseLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Runs `work` in the caller's turn, at most one at a time; keeps this object alive. Once the
  // call is closed no piece of it is begun. Closes the call where the caller has too much
  // waiting, which what `follows` does not count for.
  void Queue(Executor& executor, Executor::Entry entry, Executor::Work work)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // What `work` says; where memory runs out, the end of the call: an executor's thread, and with it
  // the server, would end otherwise.
  template <typename Work>
  bool RunGuarded(const Work& work) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      DropWork();  // before the client hears of it
      Close(Refuse(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
                   "what %s works on must fit into host memory; it does not", method_));
      return false;
    }
  }

  RpcContext& context() { return context_; }
  std::string_view method() const { return method_; }
  // Whom the call acts for; from Open on.
  const std::string& tenant() const { return identity_.tenant; }
  // Whose turns the call's work takes: the tenant's, or where nobody needs credentials those
  // of the address that the call comes from; from Open on.
  const std::string& sharer() const { return sharer_; }
  // The traceparent of the call, from Open on; empty: none.
  const std::string& traceparent() const { return traceparent_; }

  mutable Mutex mutex_;

 private:
  // gRPC's Finish.
  virtual void FinishRpc(const absl::Status& status) = 0;
  // Called on the executor once the call is closed, or is about to be. Drops the work that has
  // begun, which may delete files.
  virtual void DropWork() {}
  absl::Status FindOutWhoCalls();
  void Record(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WhyCancelled() const;

  RpcContext& context_;
  const std::string_view method_;
  grpc::CallbackServerContext* const rpc_;
  const absl::Time start_;
  const std::shared_ptr<Connection> connection_;
  // Written by Open before another thread knows of the call.
  Identity identity_;
  std::string sharer_;
  std::string traceparent_;
  CallSubject subject_ ABSL_GUARDED_BY(mutex_);
  std::optional<Connection::PendingRead> read_ ABSL_GUARDED_BY(mutex_);
  StopSignal ended_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  Clock::time_point closed_at_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;             // rpc_ may be gone
  Executor* executor_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the last work; null: none
  Executor::TaskId task_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Call> self_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_CALL_H_
