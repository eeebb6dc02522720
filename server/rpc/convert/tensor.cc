#include <optional>

#include "server/fields/option_fields.h"
#include "server/rpc/convert/convert.h"
#include "server/tensors/spec.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr int32_t kSuggestedChunkBytes = 1 << 20;

v1::TensorKind KindToProto(TensorKind kind) {
  switch (kind) {
    case TensorKind::kWeight:
      return v1::TENSOR_KIND_WEIGHT;
    case TensorKind::kGram:
      return v1::TENSOR_KIND_GRAM;
    case TensorKind::kSaliency:
      return v1::TENSOR_KIND_SALIENCY;
    case TensorKind::kMask:
      return v1::TENSOR_KIND_MASK;
    case TensorKind::kPrunedWeight:
      return v1::TENSOR_KIND_PRUNED_WEIGHT;
  }
  return v1::TENSOR_KIND_UNSPECIFIED;
}

absl::StatusOr<TensorDType> DTypeFromProto(v1::DataType dtype, std::string_view field,
                                           std::optional<TensorDType> otherwise) {
  switch (dtype) {
    case v1::DATA_TYPE_UNSPECIFIED:
      if (otherwise.has_value()) return *otherwise;
      return Invalid("SPEC_INVALID", "%s must be set; got DATA_TYPE_UNSPECIFIED", field);
    case v1::DATA_TYPE_F32:
      return TensorDType::kF32;
    case v1::DATA_TYPE_F16:
      return TensorDType::kF16;
    case v1::DATA_TYPE_BF16:
      return TensorDType::kBF16;
    case v1::DATA_TYPE_F64:
      return TensorDType::kF64;
    case v1::DATA_TYPE_U1:
      return TensorDType::kU1;
    default:
      return UnknownEnum(field, dtype);
  }
}

}  // namespace

absl::StatusOr<TensorKind> FromProto(v1::TensorKind kind, std::string_view field) {
  switch (kind) {
    case v1::TENSOR_KIND_UNSPECIFIED:
      return Invalid("SPEC_INVALID", "%s must be set; got TENSOR_KIND_UNSPECIFIED", field);
    case v1::TENSOR_KIND_WEIGHT:
      return TensorKind::kWeight;
    case v1::TENSOR_KIND_GRAM:
      return TensorKind::kGram;
    case v1::TENSOR_KIND_SALIENCY:
      return TensorKind::kSaliency;
    case v1::TENSOR_KIND_MASK:
      return TensorKind::kMask;
    case v1::TENSOR_KIND_PRUNED_WEIGHT:
      return TensorKind::kPrunedWeight;
    default:
      return UnknownEnum(field, kind);
  }
}

v1::DataType ToProto(TensorDType dtype) {
  switch (dtype) {
    case TensorDType::kF32:
      return v1::DATA_TYPE_F32;
    case TensorDType::kF16:
      return v1::DATA_TYPE_F16;
    case TensorDType::kBF16:
      return v1::DATA_TYPE_BF16;
    case TensorDType::kF64:
      return v1::DATA_TYPE_F64;
    case TensorDType::kU1:
      return v1::DATA_TYPE_U1;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

absl::StatusOr<TensorSpec> FromProto(const v1::TensorSpec& proto) {
  TensorSpec spec;
  SPARSEFW_ASSIGN_OR_RETURN(spec.kind, FromProto(proto.kind(), "kind"));
  SPARSEFW_ASSIGN_OR_RETURN(spec.dtype, DTypeFromProto(proto.dtype(), "dtype", std::nullopt));
  if (proto.dims_size() != 2) {
    return Invalid("SPEC_INVALID", "dims must be two numbers; got %d", proto.dims_size());
  }
  if (proto.token_count() < 0) {
    return Invalid("SPEC_INVALID", "token_count must be at least 0; got %d", proto.token_count());
  }
  spec.rows = proto.dims(0);
  spec.cols = proto.dims(1);
  spec.token_count = proto.token_count();
  return spec;
}

absl::StatusOr<GramSpec> FromProto(const v1::GramSpec& proto) {
  GramSpec spec;
  spec.d_in = proto.d_in();
  SPARSEFW_ASSIGN_OR_RETURN(
      spec.activation_dtype,
      DTypeFromProto(proto.activation_dtype(), "activation_dtype", std::nullopt));
  SPARSEFW_ASSIGN_OR_RETURN(spec.gram_dtype,
                            DTypeFromProto(proto.gram_dtype(), "gram_dtype", TensorDType::kF32));
  return spec;
}

v1::TensorSpec ToProto(const TensorSpec& spec) {
  v1::TensorSpec proto;
  proto.set_kind(KindToProto(spec.kind));
  proto.set_dtype(ToProto(spec.dtype));
  proto.add_dims(spec.rows);
  proto.add_dims(spec.cols);
  proto.set_token_count(spec.token_count);
  return proto;
}

v1::GramSpec ToProto(const GramSpec& spec) {
  v1::GramSpec proto;
  proto.set_d_in(spec.d_in);
  proto.set_activation_dtype(ToProto(spec.activation_dtype));
  proto.set_gram_dtype(ToProto(spec.gram_dtype));
  return proto;
}

v1::Tensor ToProto(const TensorInfo& info) {
  v1::Tensor proto;
  proto.set_name(info.name);
  *proto.mutable_spec() = ToProto(info.spec);
  proto.set_byte_size(info.byte_size);
  proto.set_crc32c(info.crc32c);
  *proto.mutable_create_time() = ToProto(info.create_time);
  if (info.expire_time != absl::InfiniteFuture()) {
    *proto.mutable_expire_time() = ToProto(info.expire_time);
  }
  proto.set_owner(info.owner.name);
  proto.set_reference_count(info.reference_count);
  return proto;
}

v1::Upload ToProto(const UploadInfo& info) {
  v1::Upload proto;
  proto.set_name(info.name);
  *proto.mutable_spec() = ToProto(info.spec);
  if (info.gram.has_value()) *proto.mutable_gram() = ToProto(*info.gram);
  proto.set_committed_size(info.committed_size);
  proto.set_committed_tokens(info.committed_tokens);
  proto.set_committed_crc32c(info.committed_crc32c);
  proto.set_suggested_chunk_bytes(kSuggestedChunkBytes);
  *proto.mutable_create_time() = ToProto(info.create_time);
  if (info.expire_time != absl::InfiniteFuture()) {
    *proto.mutable_expire_time() = ToProto(info.expire_time);
  }
  return proto;
}

}  // namespace sparsefw::server
