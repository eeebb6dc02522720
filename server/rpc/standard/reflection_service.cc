#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "reflection.pb.h"
#include "server/rpc/convert/status_converter.h"
#include "server/rpc/runtime/call.h"
#include "server/rpc/services.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

// A name is echoed; more of it than any has is cut off.
constexpr size_t kLongestName = 200;

void SetError(grpc::StatusCode code, std::string message, ServerReflectionResponse* response) {
  response->mutable_error_response()->set_error_code(code);
  response->mutable_error_response()->set_error_message(std::move(message));
}

// Clients ask for the files that it depends on by their names.
void SetFile(const FileDescriptor* file, const std::string& name,
             ServerReflectionResponse* response) {
  if (file == nullptr) {
    return SetError(grpc::StatusCode::NOT_FOUND,
                    absl::StrFormat("nothing is called %s", name.substr(0, kLongestName)),
                    response);
  }
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  *response->mutable_file_descriptor_response()->add_file_descriptor_proto() =
      proto.SerializeAsString();
}

void Answer(const ServerReflectionRequest& request, ServerReflectionResponse* response) {
  response->set_valid_host(request.host().substr(0, kLongestName));
  *response->mutable_original_request() = request;
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const char* name :
           {"sparsefw.v1.PruneService", "sparsefw.v1.TensorService", "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection"}) {
        response->mutable_list_services_response()->add_service()->set_name(name);
      }
      return;
    case ServerReflectionRequest::kFileByFilename:
      return SetFile(pool.FindFileByName(request.file_by_filename()), request.file_by_filename(),
                     response);
    case ServerReflectionRequest::kFileContainingSymbol:
      return SetFile(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                     request.file_containing_symbol(), response);
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      return SetError(grpc::StatusCode::UNIMPLEMENTED,
                      "only services, files and symbols can be asked for", response);
  }
}

// A question, its answer, the next question.
class ReflectionCall final
    : public grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse>,
      public Call {
 public:
  ReflectionCall(RpcContext& context, grpc::CallbackServerContext* rpc)
      : Call(context, "ServerReflection/ServerReflectionInfo", rpc) {}

  void Start() {
    if (!Open()) return;
    // A drain that has begun tells no call that comes after it.
    if (const absl::Status status = context().registry->Admit(); !status.ok()) return Close(status);
    Read();
  }
  void OnReadDone(bool ok) override {
    ReadEnds();
    if (!ok) return Close(absl::OkStatus());
    const size_t size = request_.ByteSizeLong();
    connection().Received(static_cast<int64_t>(size));
    // The answer repeats the question.
    if (size > kMaxQuestionBytes) {
      ServerReflectionRequest().Swap(&request_);  // nobody counts it
      return Close(Invalid("MESSAGE_INVALID", "a question may have %d bytes; got %d",
                           kMaxQuestionBytes, size));
    }
    response_.Clear();
    Answer(request_, &response_);
    absl::StatusOr<HeldBytes> held =
        connection().HoldResponse(static_cast<int64_t>(response_.ByteSizeLong()), 2);
    if (!held.ok()) return Close(held.status());
    held_ = *std::move(held);
    MutexLock lock(mutex_);
    if (!closed()) StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Cancelled();
    held_ = HeldBytes();
    Read();
  }
  void OnDrain() override { Close(DrainingError()); }
  void OnCancel() override { Cancelled(); }
  void OnDone() override { Done(); }

 private:
  static constexpr size_t kMaxQuestionBytes = 4096;

  void Read() {
    request_.Clear();
    MutexLock lock(mutex_);
    if (closed()) return;
    ReadBegins();
    StartRead(&request_);
  }
  void FinishRpc(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  ServerReflectionRequest request_;
  ServerReflectionResponse response_;
  HeldBytes held_;
};

class UnknownCall final : public grpc::ServerGenericBidiReactor, public Call {
 public:
  UnknownCall(RpcContext& context, grpc::CallbackServerContext* rpc)
      : Call(context, "unknown", rpc) {}

  void Start() {
    if (Open()) Close(absl::UnimplementedError("there is no such method"));
  }
  void OnCancel() override { Cancelled(); }
  void OnDone() override { Done(); }

 private:
  void FinishRpc(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }
};

}  // namespace

ReflectionService::ReflectionService(RpcContext& context) {
  AddBidi<ServerReflectionRequest, ServerReflectionResponse>(
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      [&context](grpc::CallbackServerContext* rpc) {
        return StartCall<ReflectionCall>(context, rpc);
      });
}

grpc::ServerGenericBidiReactor* UnknownService::CreateReactor(
    grpc::GenericCallbackServerContext* rpc) {
  return StartCall<UnknownCall>(context_, rpc);
}

}  // namespace sparsefw::server
