// TensorService.ReadTensor.
#ifndef SPARSEFW_SERVER_RPC_TENSORS_READ_CALL_H_
#define SPARSEFW_SERVER_RPC_TENSORS_READ_CALL_H_

#include <optional>

#include "server/rpc/runtime/one_request_call.h"
#include "server/rpc/tensors/chunk_reader.h"
#include "sparsefw/v1/tensor_service.pb.h"

namespace sparsefw::server {

// One chunk under way at any time. The next is made on the executor, where a
// page of the spool file may be waited for.
class ReadCall final : public OneRequestCall<v1::ReadTensorRequest, grpc::ByteBuffer> {
 public:
  ReadCall(RpcContext& context, grpc::CallbackServerContext* rpc)
      : OneRequestCall(context, "TensorService/ReadTensor", rpc) {}
  ~ReadCall() override { ReleaseTensor(); }  // only then no Pump runs any more

  void OnWriteDone(bool ok) override;

 private:
  void Begin() override;
  absl::Status OpenTensor();
  void Pump();
  void ReleaseTensor();
  void FinishRpc(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  std::optional<ChunkReader> reader_;  // used by one Pump at a time
  grpc::ByteBuffer response_;          // used by one Pump at a time and by the write under way
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_TENSORS_READ_CALL_H_
