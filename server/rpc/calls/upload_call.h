// The two client-streaming calls: chunks in, one response out.
#ifndef SPARSEFW_SERVER_RPC_CALLS_UPLOAD_CALL_H_
#define SPARSEFW_SERVER_RPC_CALLS_UPLOAD_CALL_H_

#include <memory>
#include <optional>
#include <utility>

#include "server/rpc/calls/chunk_sink.h"
#include "server/rpc/runtime/call.h"
#include "server/rpc/runtime/staged_stream.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {

// Sink (chunk_sink.h) knows what the messages mean. Messages are read as the
// staging budget allows and handled in order on the executor.
template <typename Sink>
class UploadCall final : public grpc::ServerReadReactor<typename Sink::Request>,
                         public Call,
                         private StagedStream<typename Sink::Request>::Owner {
 public:
  using Request = typename Sink::Request;
  using Response = typename Sink::Response;

  UploadCall(RpcContext& context, grpc::CallbackServerContext* rpc, Response* response)
      : Call(context, Sink::kMethod, rpc),
        response_(response),
        sink_(context),
        stream_(context, this) {}

  void Start() {
    if (!Open()) return;
    if (const absl::Status status = context().registry->Admit(); !status.ok()) {
      return Close(status);
    }
    stream_.Read();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {  // the client has closed its half
      stream_.Post([self = Self()] { self->HandleEnd(); });
      return;
    }
    const auto bytes = static_cast<int64_t>(Sink::DataOf(stream_.incoming()).size());
    context().metrics->BytesReceived(method(), bytes);
    stream_.OnRead(bytes, Self());
  }
  void OnCancel() override { Cancelled(); }
  void OnDone() override {
    stream_.StopWaiting();
    // What nobody can name any more is dropped, after the chunk under way.
    stream_.Post([self = Self()] { self->sink_.Abandon(); });
    Done();
  }
  // The client resumes it elsewhere, or here after a restart.
  void OnDrain() override { Close(ReactorRegistry::DrainingError()); }

 private:
  std::shared_ptr<UploadCall> Self() {
    return std::static_pointer_cast<UploadCall>(shared_from_this());
  }
  bool IsClosed() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return closed();
  }
  void StartReadIfOpen(Request* request) override {
    MutexLock lock(mutex_);
    if (!closed()) this->StartRead(request);
  }
  void Handle(const Request& request) override {
    if (IsClosed()) return;
    absl::StatusOr<std::optional<Response>> response = sink_.Take(request);
    if (!response.ok()) {
      context().metrics->ChunkRejected(ReasonOf(response.status()));
      Close(response.status());
    } else if (response->has_value()) {
      Complete(**std::move(response));
    }
  }
  void HandleEnd() {
    if (IsClosed()) return;
    absl::StatusOr<Response> response = sink_.EndOfStream();
    if (!response.ok()) return Close(response.status());
    Complete(*std::move(response));
  }
  void Complete(Response response) {
    MutexLock lock(mutex_);
    if (closed()) return;
    *response_ = std::move(response);
    CloseLocked(absl::OkStatus());
  }
  void FinishRpc(const absl::Status& status) override { this->Finish(ToGrpcStatus(status)); }

  Response* const response_;
  Sink sink_;  // on the executor only, one task at a time
  StagedStream<Request> stream_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CALLS_UPLOAD_CALL_H_
