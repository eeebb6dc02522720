// The sum of Gram matrices that are on the server.
#ifndef SPARSEFW_SERVER_RPC_TENSORS_SUM_GRAMS_H_
#define SPARSEFW_SERVER_RPC_TENSORS_SUM_GRAMS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/rpc/runtime/rpc_context.h"
#include "sparsefw/v1/tensor_service.pb.h"

namespace sparsefw::server {

// G = sum_k G_k in float64, rounded once to gram_dtype; token_count is the sum of theirs, 0
// where one of them is unknown. The same parts in the same order give the same bits. O(parts
// * d_in^2) time, at most 64 rows of memory besides the parts, which are mapped.
//
// Used by one thread at a time; waits for the disk. Gone before its end it leaves nothing, but
// what other calls of the same request go on with.
class GramSum {
 public:
  // Nothing: a block of rows is summed, and Step is to be called again. Errors:
  // InvalidArgument (SPEC_INVALID, WRONG_TENSOR_KIND, SHAPE_MISMATCH, NON_FINITE), NotFound
  // (TENSOR_NOT_FOUND, also for another tenant's), those of TensorStore::CreateUpload, Write
  // and Finish.
  using Result = std::optional<absl::StatusOr<v1::Tensor>>;

  GramSum(RpcContext& context, v1::SumGramsRequest request);
  ~GramSum();
  GramSum(const GramSum&) = delete;
  GramSum& operator=(const GramSum&) = delete;

  // stop: the call has ended
  Result Step(const std::string& tenant, const StopSignal& stop);

 private:
  Result TryStep(const Owner& owner, const StopSignal& stop);
  // Opens the parts and the upload. The tensor where the request has been answered before.
  absl::StatusOr<std::optional<TensorInfo>> Begin(const Owner& owner, const StopSignal& stop);
  absl::Status SumBlock();
  void Leave(bool abandon);

  RpcContext& context_;
  const v1::SumGramsRequest request_;
  std::vector<std::shared_ptr<const TensorHandle>> parts_;
  std::optional<UploadInfo> upload_;  // none: not begun
  int64_t row_ = 0;                   // of the upload, the first that is not there
  std::vector<double> sum_;           // of a block
  std::vector<float> narrow_;         // the block, rounded
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_TENSORS_SUM_GRAMS_H_
