#include "server/rpc/standard/unknown_service.h"

#include <memory>

#include "server/rpc/runtime/call.h"
#include "server/rpc/runtime/service.h"

namespace sparsefw::server {
namespace {

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

grpc::ServerGenericBidiReactor* UnknownService::CreateReactor(
    grpc::GenericCallbackServerContext* rpc) {
  return StartCall<UnknownCall>(context_, rpc);
}

}  // namespace sparsefw::server
