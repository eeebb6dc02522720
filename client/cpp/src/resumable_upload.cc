#include "client/cpp/src/resumable_upload.h"

#include <functional>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "sparsefw/client/error.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::client::internal {
namespace {

// Where an upload stands: complete, or at a committed position.
struct Position {
  std::optional<v1::Tensor> tensor;
  std::string upload;
  int64_t committed = 0;
};

v1::CreateUploadRequest RequestOf(const Rpc& rpc, const UploadContent& content,
                                  const std::string& request_id) {
  v1::CreateUploadRequest request = content.CreateRequest();
  request.set_request_id(request_id);
  request.set_owner(rpc.options().owner);
  return request;
}

// The same request_id finds an upload made before, and the tensor it became.
absl::StatusOr<Position> Open(const Rpc& rpc, const UploadContent& content,
                              const std::string& request_id, const CallOptions& call) {
  const v1::CreateUploadRequest request = RequestOf(rpc, content, request_id);
  v1::CreateUploadResponse response;
  const auto create = [&](grpc::ClientContext* context) {
    return rpc.tensors().CreateUpload(context, request, &response);
  };
  SPARSEFW_RETURN_IF_ERROR(rpc.Call("CreateUpload", call, create, OnStop::kAwaitAnswer));
  Position position;
  if (response.has_tensor()) {
    position.tensor = response.tensor();
  } else {
    position.upload = response.upload().name();
    position.committed = content.Committed(response.upload());
  }
  return position;
}

// Where the server stands after a stream that ended with `error`. The error
// says so itself where the server refused a message; a broken connection does
// not, and may have hidden a success.
absl::StatusOr<Position> Locate(const Rpc& rpc, const UploadContent& content,
                                const std::string& request_id, const std::string& upload,
                                const absl::Status& error, const CallOptions& call) {
  Position position;
  position.upload = upload;
  const ReasonMetadata metadata = ReasonMetadataOf(error);
  if (const auto found = metadata.find(content.CommittedKey());
      found != metadata.end() && absl::SimpleAtoi(found->second, &position.committed)) {
    return position;
  }
  v1::GetUploadRequest request;
  request.set_name(upload);
  v1::Upload state;
  const absl::Status status = rpc.Call("GetUpload", call, [&](grpc::ClientContext* context) {
    return rpc.tensors().GetUpload(context, request, &state);
  });
  if (absl::IsNotFound(status)) return Open(rpc, content, request_id, call);
  SPARSEFW_RETURN_IF_ERROR(status);
  position.committed = content.Committed(state);
  return position;
}

// Sending again from the committed position can help.
bool IsResumable(const absl::Status& error) {
  const std::string reason = ReasonOf(error);
  return IsTransient(error) || reason == "OFFSET_GAP" ||
         (absl::IsDataLoss(error) && reason == "CHECKSUM_MISMATCH") ||
         // The upload expired, or the server has restarted and forgot it.
         (absl::IsNotFound(error) && reason == "UPLOAD_NOT_FOUND");
}

// One upload, followed from its first byte to the finished tensor.
class Run {
 public:
  Run(const Rpc& rpc, UploadContent& content, const CallOptions& call,
      const std::string& request_id)
      : rpc_(rpc),
        content_(content),
        call_(call),
        request_id_(request_id.empty() ? NewRequestId() : request_id),
        backoff_(rpc.NewBackoff()) {}

  absl::StatusOr<v1::Tensor> ToTheEnd() {
    SPARSEFW_ASSIGN_OR_RETURN(position_, Open(rpc_, content_, request_id_, call_));
    farthest_ = position_.committed;
    for (;;) {
      if (position_.tensor) return *std::move(position_.tensor);
      if (position_.committed < 0 || position_.committed > content_.total()) {
        return Refuse(absl::StatusCode::kInternal, "PROTOCOL",
                      "the server's committed position of %s is beyond the end", position_.upload);
      }
      const absl::Time begin = absl::Now();
      const auto sent = content_.SendFrom(position_.upload, position_.committed);
      if (sent.ok()) return *sent;
      if (!IsResumable(sent.status())) return sent.status();
      backoff_.Postpone(absl::Now() - begin);
      SPARSEFW_RETURN_IF_ERROR(rpc_.WaitToRetry(sent.status(), backoff_, call_));
      const std::string upload = position_.upload;
      SPARSEFW_ASSIGN_OR_RETURN(position_,
                                Locate(rpc_, content_, request_id_, upload, sent.status(), call_));
      if (position_.committed <= farthest_) continue;
      farthest_ = position_.committed;
      backoff_.Reset(absl::Now());
    }
  }

  // After the error `why`: gives the room that the upload has reserved back at once. If that does
  // not work the server does it later by itself.
  void Abandon(const absl::Status& why) const {
    const std::string& upload = position_.upload;
    if (!upload.empty() && !absl::IsNotFound(DeleteUpload(upload))) return;
    if (upload.empty() && !LostAnswer(why)) return;  // refused: nothing was made
    // The answer that would tell was lost: there may be an upload, or a tensor that it has become.
    // Twice, for it may become one between two calls.
    for (int i = 0; i < 2; ++i) {
      const auto found = Find();
      if (!found.ok()) return;
      if (found->has_tensor()) {
        DeleteTensor(found->tensor().name()).IgnoreError();
        return;
      }
      if (!absl::IsNotFound(DeleteUpload(found->upload().name()))) return;
    }
  }

 private:
  static bool LostAnswer(const absl::Status& error) {
    return absl::IsCancelled(error) || absl::IsUnavailable(error) ||
           absl::IsDeadlineExceeded(error);
  }

  // One attempt of a second, whatever the caller's stop token says.
  absl::Status Once(const std::function<grpc::Status(grpc::ClientContext*)>& attempt) const {
    grpc::ClientContext context;
    rpc_.AddMetadata(&context);
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(1)));
    return StatusFromGrpc(attempt(&context));
  }

  // The upload or tensor that the request has made; makes an upload where there is none.
  absl::StatusOr<v1::CreateUploadResponse> Find() const {
    const v1::CreateUploadRequest request = RequestOf(rpc_, content_, request_id_);
    v1::CreateUploadResponse response;
    SPARSEFW_RETURN_IF_ERROR(Once([&](grpc::ClientContext* context) {
      return rpc_.tensors().CreateUpload(context, request, &response);
    }));
    return response;
  }

  absl::Status DeleteUpload(const std::string& name) const {
    v1::DeleteUploadRequest request;
    request.set_name(name);
    google::protobuf::Empty empty;
    return Once([&](grpc::ClientContext* context) {
      return rpc_.tensors().DeleteUpload(context, request, &empty);
    });
  }

  absl::Status DeleteTensor(const std::string& name) const {
    v1::DeleteTensorRequest request;
    request.set_name(name);
    google::protobuf::Empty empty;
    return Once([&](grpc::ClientContext* context) {
      return rpc_.tensors().DeleteTensor(context, request, &empty);
    });
  }

  const Rpc& rpc_;
  UploadContent& content_;
  const CallOptions& call_;
  const std::string request_id_;
  Backoff backoff_;
  Position position_;
  int64_t farthest_ = 0;  // a server that goes back and forth makes no progress
};

}  // namespace

absl::StatusOr<v1::Tensor> RunUpload(const Rpc& rpc, UploadContent& content,
                                     const CallOptions& call, const std::string& request_id) {
  Run run(rpc, content, call, request_id);
  auto tensor = run.ToTheEnd();
  // A caller that named the request may come back to it.
  if (!tensor.ok() && request_id.empty()) run.Abandon(tensor.status());
  return tensor;
}

}  // namespace sparsefw::client::internal
