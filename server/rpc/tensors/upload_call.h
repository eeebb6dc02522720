// The two client-streaming calls: chunks in, one response out.
#ifndef SPARSEFW_SERVER_RPC_TENSORS_UPLOAD_CALL_H_
#define SPARSEFW_SERVER_RPC_TENSORS_UPLOAD_CALL_H_

#include <optional>
#include <utility>

#include "server/rpc/tensors/intake_call.h"
#include "server/rpc/tensors/upload_stream.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {

template <typename Request, typename Response>
class UploadCall final : public IntakeCall<grpc::ServerReadReactor<Request>, Request> {
 public:
  UploadCall(RpcContext& context, grpc::CallbackServerContext* rpc, Response* response)
      : UploadCall::IntakeCall(
            context, Stream::kSums ? "TensorService/AccumulateGram" : "TensorService/WriteTensor",
            rpc, Stream::kSums ? &context.threads->sums : &context.threads->data),
        response_(response),
        stream_(context) {}

  // The client resumes it elsewhere, or here after a restart.
  void OnDrain() override { this->Close(DrainingError()); }

 private:
  using Stream = UploadStream<Request, Response>;

  int64_t DataBytes(const Request& request) const override {
    return static_cast<int64_t>(Stream::DataOf(request).size());
  }
  absl::Status Take(const Request& request) override {
    // It stays with the call until its end, when nothing counts the message any more.
    SPARSEFW_RETURN_IF_ERROR(Stream::CheckName(request));
    stream_.SetTenant(this->tenant());
    if (request.has_upload()) this->AddSubject({"", request.upload()});
    SPARSEFW_ASSIGN_OR_RETURN(std::optional<Response> response, stream_.Take(request));
    if (response.has_value()) Complete(*std::move(response));
    return absl::OkStatus();
  }
  absl::Status TakeEnd() override {
    SPARSEFW_ASSIGN_OR_RETURN(Response response, stream_.EndOfStream());
    Complete(std::move(response));
    return absl::OkStatus();
  }
  void CleanUp() override { stream_.Abandon(); }
  void Complete(Response response) {
    MutexLock lock(this->mutex_);
    if (this->closed()) return;
    *response_ = std::move(response);
    this->CloseLocked(absl::OkStatus());
  }
  void FinishRpc(const absl::Status& status) override { this->Finish(ToGrpcStatus(status)); }

  Response* const response_;
  Stream stream_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_TENSORS_UPLOAD_CALL_H_
