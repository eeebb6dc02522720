#include "server/rpc/calls/tensor_service.h"

#include <memory>
#include <variant>

#include "server/rpc/calls/read_call.h"
#include "server/rpc/calls/sum_grams.h"
#include "server/rpc/calls/tenant_view.h"
#include "server/rpc/calls/upload_call.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/runtime/call.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

using google::protobuf::Empty;

absl::StatusOr<v1::CreateUploadResponse> CreateUploadIn(RpcContext& context, const Owner& owner,
                                                        const v1::CreateUploadRequest& request) {
  SPARSEFW_RETURN_IF_ERROR(context.registry->Admit());
  SPARSEFW_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  SPARSEFW_RETURN_IF_ERROR(CheckOwner(request.owner()));
  absl::StatusOr<std::variant<UploadInfo, TensorInfo>> created =
      Invalid("SPEC_INVALID", "content must be a tensor or a gram; got neither");
  if (request.has_tensor()) {
    SPARSEFW_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(request.tensor()));
    created = context.tensors->CreateUpload(spec, request.request_id(), owner);
  } else if (request.has_gram()) {
    SPARSEFW_ASSIGN_OR_RETURN(const GramSpec spec, FromProto(request.gram()));
    created = context.tensors->CreateGramUpload(spec, request.request_id(), owner);
  }
  SPARSEFW_RETURN_IF_ERROR(created.status());
  v1::CreateUploadResponse response;
  if (const auto* upload = std::get_if<UploadInfo>(&*created)) {
    *response.mutable_upload() = ToProto(*upload);
  } else {
    *response.mutable_tensor() = ToProto(std::get<TensorInfo>(*created));
  }
  return response;
}

absl::StatusOr<v1::ListTensorsResponse> ListTensorsIn(RpcContext& context,
                                                      const std::string& tenant,
                                                      const v1::ListTensorsRequest& request) {
  SPARSEFW_ASSIGN_OR_RETURN(const int page_size, PageSize(request.page_size()));
  SPARSEFW_ASSIGN_OR_RETURN(const TensorStore::Page page,
                            context.tensors->ListTensors(page_size, request.page_token(), tenant));
  v1::ListTensorsResponse response;
  for (const TensorInfo& info : page.tensors) *response.add_tensors() = ToProto(info);
  response.set_next_page_token(page.next_page_token);
  return response;
}

absl::StatusOr<Empty> ToEmpty(const absl::Status& status) {
  if (!status.ok()) return status;
  return Empty();
}

}  // namespace

grpc::ServerUnaryReactor* TensorServiceImpl::CreateUpload(grpc::CallbackServerContext* rpc,
                                                          const v1::CreateUploadRequest* request,
                                                          v1::CreateUploadResponse* response) {
  return RunUnary(context_, "TensorService/CreateUpload", rpc, request, response,
                  context_.data_executor, [this, request = *request](const std::string& tenant) {
                    return CreateUploadIn(context_, {tenant, request.owner()}, request);
                  });
}

grpc::ServerReadReactor<v1::WriteTensorRequest>* TensorServiceImpl::WriteTensor(
    grpc::CallbackServerContext* rpc, v1::WriteTensorResponse* response) {
  auto call = std::make_shared<UploadCall<WriteTensorStream>>(context_, rpc, response);
  call->Start();
  return call.get();
}

grpc::ServerReadReactor<v1::AccumulateGramRequest>* TensorServiceImpl::AccumulateGram(
    grpc::CallbackServerContext* rpc, v1::AccumulateGramResponse* response) {
  auto call = std::make_shared<UploadCall<AccumulateGramStream>>(context_, rpc, response);
  call->Start();
  return call.get();
}

grpc::ServerUnaryReactor* TensorServiceImpl::SumGrams(grpc::CallbackServerContext* rpc,
                                                      const v1::SumGramsRequest* request,
                                                      v1::Tensor* response) {
  return RunUnary(context_, "TensorService/SumGrams", rpc, request, response,
                  context_.data_executor, [this, request = *request](const std::string& tenant) {
                    return SumGramsIn(context_, {tenant, request.owner()}, request);
                  });
}

grpc::ServerUnaryReactor* TensorServiceImpl::GetUpload(grpc::CallbackServerContext* rpc,
                                                       const v1::GetUploadRequest* request,
                                                       v1::Upload* response) {
  return RunUnary(
      context_, "TensorService/GetUpload", rpc, request, response, context_.data_executor,
      [this, name = request->name()](const std::string& tenant) -> absl::StatusOr<v1::Upload> {
        SPARSEFW_ASSIGN_OR_RETURN(
            const UploadInfo info,
            WithUpload(*context_.tensors, tenant, name,
                       [this](std::string_view key) { return context_.tensors->GetUpload(key); }));
        return ToProto(info);
      });
}

grpc::ServerUnaryReactor* TensorServiceImpl::DeleteUpload(grpc::CallbackServerContext* rpc,
                                                          const v1::DeleteUploadRequest* request,
                                                          Empty* response) {
  return RunUnary(
      context_, "TensorService/DeleteUpload", rpc, request, response, context_.data_executor,
      [this, name = request->name()](const std::string& tenant) {
        return ToEmpty(WithUpload(*context_.tensors, tenant, name, [this](std::string_view key) {
          return context_.tensors->DeleteUpload(key);
        }));
      });
}

grpc::ServerUnaryReactor* TensorServiceImpl::GetTensor(grpc::CallbackServerContext* rpc,
                                                       const v1::GetTensorRequest* request,
                                                       v1::Tensor* response) {
  return RunUnary(
      context_, "TensorService/GetTensor", rpc, request, response, context_.data_executor,
      [this, name = request->name()](const std::string& tenant) -> absl::StatusOr<v1::Tensor> {
        SPARSEFW_ASSIGN_OR_RETURN(
            const TensorInfo info,
            WithTensor(*context_.tensors, tenant, name,
                       [this](std::string_view key) { return context_.tensors->GetTensor(key); }));
        return ToProto(info);
      });
}

grpc::ServerUnaryReactor* TensorServiceImpl::ListTensors(grpc::CallbackServerContext* rpc,
                                                         const v1::ListTensorsRequest* request,
                                                         v1::ListTensorsResponse* response) {
  return RunUnary(context_, "TensorService/ListTensors", rpc, request, response,
                  context_.data_executor, [this, request = *request](const std::string& tenant) {
                    return ListTensorsIn(context_, tenant, request);
                  });
}

grpc::ServerUnaryReactor* TensorServiceImpl::DeleteTensor(grpc::CallbackServerContext* rpc,
                                                          const v1::DeleteTensorRequest* request,
                                                          Empty* response) {
  return RunUnary(
      context_, "TensorService/DeleteTensor", rpc, request, response, context_.data_executor,
      [this, name = request->name()](const std::string& tenant) {
        return ToEmpty(WithTensor(*context_.tensors, tenant, name, [this](std::string_view key) {
          return context_.tensors->DeleteTensor(key);
        }));
      });
}

grpc::ServerWriteReactor<v1::ReadTensorResponse>* TensorServiceImpl::ReadTensor(
    grpc::CallbackServerContext* rpc, const v1::ReadTensorRequest* request) {
  auto call = std::make_shared<ReadCall>(context_, rpc);
  call->Start(*request);
  return call.get();
}

}  // namespace sparsefw::server
