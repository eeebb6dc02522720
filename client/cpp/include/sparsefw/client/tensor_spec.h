// Descriptions of the tensors that clients send.
#ifndef SPARSEFW_CLIENT_TENSOR_SPEC_H_
#define SPARSEFW_CLIENT_TENSOR_SPEC_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "sparsefw/dtype.h"
#include "sparsefw/v1/tensor.pb.h"

namespace sparsefw::client {

// kBool has no counterpart on the wire: masks travel as U1.
v1::DataType ToProto(DType dtype);
std::optional<DType> FromProto(v1::DataType dtype);

v1::TensorSpec WeightSpec(DType dtype, int64_t d_out, int64_t d_in);
// `token_count`: how many tokens were summed into it, 0 when unknown.
v1::TensorSpec GramTensorSpec(DType dtype, int64_t d_in, int64_t token_count = 0);
v1::TensorSpec SaliencySpec(int64_t d_out, int64_t d_in);
v1::TensorSpec MaskSpec(int64_t d_out, int64_t d_in);
v1::GramSpec ActivationSpec(DType activation_dtype, int64_t d_in, DType gram_dtype = DType::kF32);

// Bytes of the tensor on the wire; U1 rows are padded to whole bytes.
// Errors: InvalidArgument  not two dims of at least 1, no dtype, or beyond int64
absl::StatusOr<int64_t> ByteSize(const v1::TensorSpec& spec);

}  // namespace sparsefw::client

#endif  // SPARSEFW_CLIENT_TENSOR_SPEC_H_
