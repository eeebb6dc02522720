// The data plane, over the tensor store.
#ifndef SPARSEFW_SERVER_RPC_CALLS_TENSOR_SERVICE_H_
#define SPARSEFW_SERVER_RPC_CALLS_TENSOR_SERVICE_H_

#include "server/rpc/runtime/rpc_context.h"
#include "sparsefw/v1/tensor_service.grpc.pb.h"

namespace sparsefw::server {

// Thread-safe; the context outlives it.
class TensorServiceImpl final : public v1::TensorService::CallbackService {
 public:
  explicit TensorServiceImpl(RpcContext& context) : context_(context) {}

  grpc::ServerUnaryReactor* CreateUpload(grpc::CallbackServerContext* rpc,
                                         const v1::CreateUploadRequest* request,
                                         v1::CreateUploadResponse* response) override;
  grpc::ServerReadReactor<v1::WriteTensorRequest>* WriteTensor(
      grpc::CallbackServerContext* rpc, v1::WriteTensorResponse* response) override;
  grpc::ServerReadReactor<v1::AccumulateGramRequest>* AccumulateGram(
      grpc::CallbackServerContext* rpc, v1::AccumulateGramResponse* response) override;
  grpc::ServerUnaryReactor* SumGrams(grpc::CallbackServerContext* rpc,
                                     const v1::SumGramsRequest* request,
                                     v1::Tensor* response) override;
  grpc::ServerUnaryReactor* GetUpload(grpc::CallbackServerContext* rpc,
                                      const v1::GetUploadRequest* request,
                                      v1::Upload* response) override;
  grpc::ServerUnaryReactor* DeleteUpload(grpc::CallbackServerContext* rpc,
                                         const v1::DeleteUploadRequest* request,
                                         google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* GetTensor(grpc::CallbackServerContext* rpc,
                                      const v1::GetTensorRequest* request,
                                      v1::Tensor* response) override;
  grpc::ServerUnaryReactor* ListTensors(grpc::CallbackServerContext* rpc,
                                        const v1::ListTensorsRequest* request,
                                        v1::ListTensorsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteTensor(grpc::CallbackServerContext* rpc,
                                         const v1::DeleteTensorRequest* request,
                                         google::protobuf::Empty* response) override;
  grpc::ServerWriteReactor<v1::ReadTensorResponse>* ReadTensor(
      grpc::CallbackServerContext* rpc, const v1::ReadTensorRequest* request) override;

 private:
  RpcContext& context_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CALLS_TENSOR_SERVICE_H_
