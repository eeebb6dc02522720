// TensorService.ReadTensor.
#ifndef SPARSEFW_SERVER_RPC_CALLS_READ_CALL_H_
#define SPARSEFW_SERVER_RPC_CALLS_READ_CALL_H_

#include <memory>

#include "server/rpc/calls/chunk_reader.h"
#include "server/rpc/runtime/call.h"
#include "sparsefw/v1/tensor_service.pb.h"

namespace sparsefw::server {

// One chunk under way at any time. The next is made on the executor, where a
// page of the spool file may be waited for.
class ReadCall final : public grpc::ServerWriteReactor<v1::ReadTensorResponse>, public Call {
 public:
  ReadCall(RpcContext& context, grpc::CallbackServerContext* rpc)
      : Call(context, "TensorService/ReadTensor", rpc) {}
  ~ReadCall() override { ReleaseTensor(); }  // only then no Pump runs any more
  void Start(const v1::ReadTensorRequest& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { Cancelled(); }
  void OnDone() override { Done(); }

 private:
  void Pump();
  void ReleaseTensor();
  void FinishRpc(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  std::optional<ChunkReader> reader_;  // used by one Pump at a time
  v1::ReadTensorResponse response_;    // likewise, and by the write under way
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CALLS_READ_CALL_H_
