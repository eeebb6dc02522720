// Calls with one request: unary ones, and those that answer with a stream.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_ONE_REQUEST_CALL_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_ONE_REQUEST_CALL_H_

#include "grpcpp/impl/codegen/proto_utils.h"
#include "server/rpc/runtime/call.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {

// To gRPC this is a stream of both sides, which on the wire is the same: of a unary call
// gRPC reads the whole message before it calls anybody, of a stream nothing is read before
// the caller is known and StartRead is called.
template <typename Request, typename Response>
class OneRequestCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, Response>, public Call {
 public:
  void Start() {
    if (!Open()) return;
    MutexLock lock(mutex_);
    if (closed()) return;
    ReadBegins();
    this->StartRead(&wire_);
  }

  void OnReadDone(bool ok) final {
    ReadEnds();
    if (const absl::Status status = Take(ok); !status.ok()) return Close(status);
    AddSubject(SubjectOf(request_));
    Begin();
  }
  void OnCancel() override { Cancelled(); }
  void OnDone() override { Done(); }

 protected:
  using Call::Call;

  // The request is there, on a thread of gRPC.
  virtual void Begin() = 0;
  const Request& request() const { return request_; }

 private:
  // A parsed message may take dozens of times what it takes on the wire, and is counted only once
  // it is there. The largest requests, of sweeps with 256 points and of 64 labels, have a fifth of
  // this.
  static constexpr size_t kMaxRequestBytes = size_t{256} << 10;
  // Bounds the wait for such a message; most have a few bytes.
  static constexpr std::chrono::seconds kLongestArrival{30};

  absl::Status Take(bool ok) {
    if (!ok) return Invalid("MESSAGE_INVALID", "%s needs a request; there is none", method());
    const size_t size = wire_.Length();
    connection().Received(static_cast<int64_t>(size));
    if (size > kMaxRequestBytes) {
      wire_.Clear();
      return Invalid("MESSAGE_INVALID", "the request of %s may have %d bytes; got %d", method(),
                     kMaxRequestBytes, size);
    }
    const bool parsed = grpc::SerializationTraits<Request>::Deserialize(&wire_, &request_).ok();
    wire_.Clear();
    if (!parsed) {
      return Invalid("MESSAGE_INVALID", "the request of %s is no valid protobuf message", method());
    }
    absl::StatusOr<HeldBytes> held =
        connection().Hold(static_cast<int64_t>(request_.SpaceUsedLong()));
    if (!held.ok()) {
      Request().Swap(&request_);  // what nobody counts is not kept
      return held.status();
    }
    held_ = *std::move(held);
    return absl::OkStatus();
  }
  void OnTick(Clock::time_point now) override {
    MutexLock lock(mutex_);
    if (!read_begin() || now - *read_begin() < kLongestArrival) return;
    CloseLocked(Refuse(absl::StatusCode::kDeadlineExceeded, "REQUEST_INCOMPLETE",
                       "the request did not arrive within 30s"));
  }

  grpc::ByteBuffer wire_;  // until Take
  Request request_;        // from Take on
  HeldBytes held_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_ONE_REQUEST_CALL_H_
