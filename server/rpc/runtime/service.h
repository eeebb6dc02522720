// How our services are registered with gRPC.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_SERVICE_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_SERVICE_H_

#include <functional>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/rpc_method.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/impl/service_type.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/runtime/unary_call.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {

// Makes a reactor that owns itself.
template <typename OneCall, typename... Arguments>
OneCall* StartCall(RpcContext& context, Arguments... arguments) {
  // Does not use make_shared: a weak pointer, such as a timer's, would keep the memory.
  const std::shared_ptr<OneCall> call(new OneCall(context, arguments...));
  call->Start();
  return call.get();
}

// Does what the generated code does, with one difference: every RPC is a stream of its client, so
// that its handler is called before a message is read (OneRequestCall says why). Paths are
// literals: gRPC keeps pointers to them.
class Service : public grpc::Service {
 protected:
  // `executor`: null for what neither waits nor touches the disk.
  template <typename Request, typename Response>
  void AddUnary(RpcContext& context, const char* path, Executor* executor,
                typename UnaryCall<Request, Response>::Work work) {
    AddBidi<grpc::ByteBuffer, Response>(path, [&context, path, executor, work = std::move(work)](
                                                  grpc::CallbackServerContext* rpc) {
      return StartCall<UnaryCall<Request, Response>>(context, MethodOf(path), rpc, executor, work);
    });
  }
  template <typename Request, typename Response>
  void AddUnary(RpcContext& context, const char* path, Executor* executor,
                absl::StatusOr<Response> (*answer)(RpcContext&, const UnaryCaller&,
                                                   const Request&)) {
    AddUnary<Request, Response>(
        context, path, executor,
        [&context, answer](const UnaryCaller& caller, const Request& request) {
          return answer(context, caller, request);
        });
  }
  // A call whose request is the name of one thing in `store`, for which `use`, a function of the
  // store, is called. `with`: WithUpload, WithTensor or WithJob.
  template <typename Request, typename Response, typename Store, typename With, typename Result>
  void AddNamed(RpcContext& context, const char* path, Executor* executor, Store* store, With with,
                Result (Store::*use)(std::string_view)) {
    AddUnary<Request, Response>(
        context, path, executor,
        [store, with, use](const UnaryCaller& caller,
                           const Request& request) -> absl::StatusOr<Response> {
          Result result = with(*store, caller.tenant, request.name(),
                               [&](std::string_view key) { return (store->*use)(key); });
          if constexpr (std::is_same_v<Result, absl::Status>) {
            SPARSEFW_RETURN_IF_ERROR(result);
            return Response();
          } else {
            SPARSEFW_RETURN_IF_ERROR(result.status());
            return ToProto(*result);
          }
        });
  }
  template <typename Request, typename Response>
  void AddBidi(
      const char* path,
      std::function<grpc::ServerBidiReactor<Request, Response>*(grpc::CallbackServerContext*)>
          handler) {
    Add(path, grpc::internal::RpcMethod::BIDI_STREAMING,
        new grpc::internal::CallbackBidiHandler<Request, Response>(std::move(handler)));
  }
  template <typename Request, typename Response>
  void AddClientStream(
      const char* path,
      std::function<grpc::ServerReadReactor<Request>*(grpc::CallbackServerContext*, Response*)>
          handler) {
    Add(path, grpc::internal::RpcMethod::CLIENT_STREAMING,
        new grpc::internal::CallbackClientStreamingHandler<Request, Response>(std::move(handler)));
  }

 private:
  // "/sparsefw.v1.PruneService/GetJob" -> "PruneService/GetJob".
  static std::string_view MethodOf(std::string_view path) {
    return path.substr(path.find_last_of('.') + 1);
  }
  void Add(const char* path, grpc::internal::RpcMethod::RpcType type,
           grpc::internal::MethodHandler* handler) {
    AddMethod(new grpc::internal::RpcServiceMethod(path, type, nullptr));
    MarkMethodCallback(methods_++, handler);
  }

  int methods_ = 0;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_SERVICE_H_
