#include "sparsefw/client/tensor_spec.h"

#include "sparsefw/reason.h"

namespace sparsefw::client {
namespace {

v1::TensorSpec Spec(v1::TensorKind kind, v1::DataType dtype, int64_t rows, int64_t cols) {
  v1::TensorSpec spec;
  spec.set_kind(kind);
  spec.set_dtype(dtype);
  spec.add_dims(rows);
  spec.add_dims(cols);
  return spec;
}

}  // namespace

v1::DataType ToProto(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return v1::DATA_TYPE_F32;
    case DType::kF16:
      return v1::DATA_TYPE_F16;
    case DType::kBF16:
      return v1::DATA_TYPE_BF16;
    case DType::kF64:
      return v1::DATA_TYPE_F64;
    case DType::kBool:
      break;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

std::optional<DType> FromProto(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_F32:
      return DType::kF32;
    case v1::DATA_TYPE_F16:
      return DType::kF16;
    case v1::DATA_TYPE_BF16:
      return DType::kBF16;
    case v1::DATA_TYPE_F64:
      return DType::kF64;
    default:
      return std::nullopt;
  }
}

v1::TensorSpec WeightSpec(DType dtype, int64_t d_out, int64_t d_in) {
  return Spec(v1::TENSOR_KIND_WEIGHT, ToProto(dtype), d_out, d_in);
}

v1::TensorSpec GramTensorSpec(DType dtype, int64_t d_in, int64_t token_count) {
  v1::TensorSpec spec = Spec(v1::TENSOR_KIND_GRAM, ToProto(dtype), d_in, d_in);
  spec.set_token_count(token_count);
  return spec;
}

v1::TensorSpec SaliencySpec(int64_t d_out, int64_t d_in) {
  return Spec(v1::TENSOR_KIND_SALIENCY, v1::DATA_TYPE_F32, d_out, d_in);
}

v1::TensorSpec MaskSpec(int64_t d_out, int64_t d_in) {
  return Spec(v1::TENSOR_KIND_MASK, v1::DATA_TYPE_U1, d_out, d_in);
}

v1::GramSpec ActivationSpec(DType activation_dtype, int64_t d_in, DType gram_dtype) {
  v1::GramSpec spec;
  spec.set_d_in(d_in);
  spec.set_activation_dtype(ToProto(activation_dtype));
  spec.set_gram_dtype(ToProto(gram_dtype));
  return spec;
}

absl::StatusOr<int64_t> ByteSize(const v1::TensorSpec& spec) {
  if (spec.dims_size() != 2 || spec.dims(0) < 1 || spec.dims(1) < 1) {
    return Invalid("CLIENT_ARGUMENT", "a tensor must have two dims of at least 1");
  }
  int64_t row = 0;
  bool overflow = false;
  if (spec.dtype() == v1::DATA_TYPE_U1) {
    row = spec.dims(1) / 8 + (spec.dims(1) % 8 != 0 ? 1 : 0);
  } else if (const auto dtype = FromProto(spec.dtype())) {
    overflow = __builtin_mul_overflow(spec.dims(1), static_cast<int64_t>(SizeOf(*dtype)), &row);
  } else {
    return Invalid("CLIENT_ARGUMENT", "a tensor must have a dtype");
  }
  int64_t size = 0;
  if (overflow || __builtin_mul_overflow(spec.dims(0), row, &size)) {
    return Invalid("CLIENT_ARGUMENT", "the bytes of a tensor must fit int64; got dims [%d, %d]",
                   spec.dims(0), spec.dims(1));
  }
  return size;
}

}  // namespace sparsefw::client
