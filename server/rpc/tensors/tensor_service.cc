#include <memory>
#include <variant>

#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/fingerprint.h"
#include "server/rpc/runtime/tenant_view.h"
#include "server/rpc/runtime/unary_call.h"
#include "server/rpc/services.h"
#include "server/rpc/tensors/read_call.h"
#include "server/rpc/tensors/sum_grams.h"
#include "server/rpc/tensors/upload_call.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/v1/tensor_service.pb.h"

namespace sparsefw::server {
namespace {

using google::protobuf::Empty;

absl::StatusOr<v1::CreateUploadResponse> CreateUpload(RpcContext& context,
                                                      const UnaryCaller& caller,
                                                      const v1::CreateUploadRequest& request) {
  const Owner owner = {caller.tenant, request.owner()};
  SPARSEFW_RETURN_IF_ERROR(context.registry->Admit());
  SPARSEFW_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  SPARSEFW_RETURN_IF_ERROR(CheckOwner(request.owner()));
  absl::StatusOr<UploadSpec> spec =
      Invalid("SPEC_INVALID", "content must be a tensor or a gram; got neither");
  if (request.has_tensor()) spec = FromProto(request.tensor());
  if (request.has_gram()) spec = FromProto(request.gram());
  SPARSEFW_RETURN_IF_ERROR(spec.status());
  SPARSEFW_ASSIGN_OR_RETURN(
      const auto created, context.tensors->CreateUpload(*spec, request.request_id(), owner,
                                                        UploadLife::kResumable, DigestOf(request)));
  v1::CreateUploadResponse response;
  if (const auto* upload = std::get_if<UploadInfo>(&created)) {
    *response.mutable_upload() = ToProto(*upload);
  } else {
    *response.mutable_tensor() = ToProto(std::get<TensorInfo>(created));
  }
  return response;
}

absl::StatusOr<v1::ListTensorsResponse> ListTensors(RpcContext& context, const UnaryCaller& caller,
                                                    const v1::ListTensorsRequest& request) {
  SPARSEFW_ASSIGN_OR_RETURN(const int page_size, PageSize(request.page_size()));
  SPARSEFW_ASSIGN_OR_RETURN(TensorFilter filter, FilterFromProto(request));
  filter.tenant = caller.tenant;
  SPARSEFW_ASSIGN_OR_RETURN(const TensorStore::Page page,
                            context.tensors->ListTensors(page_size, request.page_token(), filter));
  v1::ListTensorsResponse response;
  for (const TensorInfo& info : page.tensors) *response.add_tensors() = ToProto(info);
  response.set_next_page_token(page.next_page_token);
  return response;
}

absl::StatusOr<v1::ListUploadsResponse> ListUploads(RpcContext& context, const UnaryCaller& caller,
                                                    const v1::ListUploadsRequest& request) {
  SPARSEFW_ASSIGN_OR_RETURN(const int page_size, PageSize(request.page_size()));
  SPARSEFW_ASSIGN_OR_RETURN(
      const TensorStore::UploadPage page,
      context.tensors->ListUploads(page_size, request.page_token(), caller.tenant));
  v1::ListUploadsResponse response;
  for (const UploadInfo& info : page.uploads) *response.add_uploads() = ToProto(info);
  response.set_next_page_token(page.next_page_token);
  return response;
}

}  // namespace

TensorServiceImpl::TensorServiceImpl(RpcContext& context) {
  Executor* const data = &context.threads->data;
  const auto upload = [](auto&&... arguments) { return WithUpload(arguments...); };
  const auto tensor = [](auto&&... arguments) { return WithTensor(arguments...); };
  AddClientStream<v1::WriteTensorRequest, v1::WriteTensorResponse>(
      "/sparsefw.v1.TensorService/WriteTensor",
      [&context](grpc::CallbackServerContext* rpc, v1::WriteTensorResponse* response) {
        return StartCall<UploadCall<v1::WriteTensorRequest, v1::WriteTensorResponse>>(context, rpc,
                                                                                      response);
      });
  AddClientStream<v1::AccumulateGramRequest, v1::AccumulateGramResponse>(
      "/sparsefw.v1.TensorService/AccumulateGram",
      [&context](grpc::CallbackServerContext* rpc, v1::AccumulateGramResponse* response) {
        return StartCall<UploadCall<v1::AccumulateGramRequest, v1::AccumulateGramResponse>>(
            context, rpc, response);
      });
  AddBidi<grpc::ByteBuffer, grpc::ByteBuffer>(
      "/sparsefw.v1.TensorService/ReadTensor",
      [&context](grpc::CallbackServerContext* rpc) { return StartCall<ReadCall>(context, rpc); });
  AddUnary(context, "/sparsefw.v1.TensorService/CreateUpload", data, &CreateUpload);
  AddNamed<v1::GetUploadRequest, v1::Upload>(context, "/sparsefw.v1.TensorService/GetUpload", data,
                                             context.tensors, upload, &TensorStore::GetUpload);
  AddUnary(context, "/sparsefw.v1.TensorService/ListUploads", data, &ListUploads);
  AddNamed<v1::DeleteUploadRequest, Empty>(context, "/sparsefw.v1.TensorService/DeleteUpload", data,
                                           context.tensors, upload, &TensorStore::DeleteUpload);
  AddUnary<v1::SumGramsRequest, v1::Tensor>(
      context, "/sparsefw.v1.TensorService/SumGrams", &context.threads->sums,
      [&context, sum = std::shared_ptr<GramSum>()](const UnaryCaller& caller,
                                                   const v1::SumGramsRequest& request) mutable {
        if (sum == nullptr) sum = std::make_shared<GramSum>(context, request);
        return sum->Step(caller.tenant, caller.ended);
      });
  AddNamed<v1::GetTensorRequest, v1::Tensor>(context, "/sparsefw.v1.TensorService/GetTensor", data,
                                             context.tensors, tensor, &TensorStore::GetTensor);
  AddUnary(context, "/sparsefw.v1.TensorService/ListTensors", data, &ListTensors);
  AddNamed<v1::DeleteTensorRequest, Empty>(context, "/sparsefw.v1.TensorService/DeleteTensor", data,
                                           context.tensors, tensor, &TensorStore::DeleteTensor);
}

}  // namespace sparsefw::server
