// The sum of Gram matrices that are on the server.
#ifndef SPARSEFW_SERVER_RPC_CALLS_SUM_GRAMS_H_
#define SPARSEFW_SERVER_RPC_CALLS_SUM_GRAMS_H_

#include "absl/status/statusor.h"
#include "server/rpc/runtime/rpc_context.h"
#include "sparsefw/v1/tensor_service.pb.h"

namespace sparsefw::server {

// G = sum_k G_k in float64, rounded once to gram_dtype; token_count is the sum of theirs, 0
// where one of them is unknown. The same parts in the same order give the same bits. O(parts
// * d_in^2) time, 64 rows of memory besides the parts, which are mapped. Waits for the disk.
// Errors: InvalidArgument (SPEC_INVALID, WRONG_TENSOR_KIND, SHAPE_MISMATCH, NON_FINITE),
// NotFound (TENSOR_NOT_FOUND, also for another tenant's), those of TensorStore::CreateUpload,
// Write and Finish.
absl::StatusOr<v1::Tensor> SumGramsIn(RpcContext& context, const Owner& owner,
                                      const v1::SumGramsRequest& request);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CALLS_SUM_GRAMS_H_
