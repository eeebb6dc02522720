// The input half of every call in which the client streams chunks.
#ifndef SPARSEFW_SERVER_RPC_CALLS_INTAKE_CALL_H_
#define SPARSEFW_SERVER_RPC_CALLS_INTAKE_CALL_H_

#include <functional>
#include <memory>
#include <utility>

#include "server/rpc/runtime/call.h"
#include "server/rpc/runtime/staged_stream.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {

// Messages are read as the staging budget allows and handled in order on one
// strand of the executor. `Reactor` is gRPC's class with StartRead. The derived
// class uses its members from Take, TakeEnd and CleanUp without a lock.
template <typename Reactor, typename Request>
class IntakeCall : public Reactor, public Call, private StagedStream<Request>::Owner {
 public:
  void Start() {
    if (!Open()) return;
    if (const absl::Status status = context().registry->Admit(); !status.ok()) {
      return Close(status);
    }
    Opened();
    stream_.Read();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {  // the client has closed its half
      return Post([this] {
        if (IsClosed()) return;
        if (const absl::Status status = TakeEnd(); !status.ok()) Close(status);
      });
    }
    const int64_t bytes = DataBytes(stream_.incoming());
    context().metrics->BytesReceived(method(), bytes);
    stream_.OnRead(bytes, shared_from_this());
  }
  void OnCancel() override { Cancelled(); }
  void OnDone() override {
    stream_.StopWaiting();
    Post([this] { CleanUp(); });  // after the message under way
    Done();
  }

 protected:
  IntakeCall(RpcContext& context, std::string_view method, grpc::CallbackServerContext* rpc)
      : Call(context, method, rpc), stream_(context, this) {}

  // Before the first message; tenant() is known.
  virtual void Opened() = 0;
  // Bytes of tensors in the message.
  virtual int64_t DataBytes(const Request& request) const = 0;
  // An error ends the call.
  virtual absl::Status Take(const Request& request) = 0;
  // The client has closed its half.
  virtual absl::Status TakeEnd() = 0;
  // The call is over: drops what nobody can name any more.
  virtual void CleanUp() = 0;

  // In order with the messages; keeps this object alive.
  void Post(std::function<void()> task) {
    stream_.Post([self = shared_from_this(), task = std::move(task)] { task(); });
  }
  bool IsClosed() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return closed();
  }
  // Nothing more is read.
  void StopReading() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    reading_ = false;
  }
  bool reading() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return reading_; }

 private:
  void StartReadIfOpen(Request* request) override {
    MutexLock lock(mutex_);
    if (!closed() && reading_) this->StartRead(request);
  }
  void Handle(const Request& request) override {
    if (IsClosed()) return;
    const absl::Status status = Take(request);
    if (status.ok()) return;
    if (DataBytes(request) > 0) context().metrics->ChunkRejected(ReasonOf(status));
    Close(status);
  }

  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  StagedStream<Request> stream_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CALLS_INTAKE_CALL_H_
