#include <algorithm>
#include <optional>

#include "server/fields/option_fields.h"
#include "server/rpc/convert/convert.h"
#include "server/tensors/tensor_spec.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

absl::StatusOr<DType> DTypeFromProto(v1::DataType dtype, std::string_view field,
                                     std::optional<DType> otherwise) {
  if (!v1::DataType_IsValid(dtype)) return UnknownEnum(field, dtype);
  if (dtype != v1::DATA_TYPE_UNSPECIFIED) return static_cast<DType>(dtype - 1);
  if (otherwise.has_value()) return *otherwise;
  return Invalid("SPEC_INVALID", "%s must be set; got DATA_TYPE_UNSPECIFIED", field);
}

}  // namespace

absl::StatusOr<TensorKind> FromProto(v1::TensorKind kind, std::string_view field) {
  if (!v1::TensorKind_IsValid(kind)) return UnknownEnum(field, kind);
  if (kind != v1::TENSOR_KIND_UNSPECIFIED) return static_cast<TensorKind>(kind - 1);
  return Invalid("SPEC_INVALID", "%s must be set; got TENSOR_KIND_UNSPECIFIED", field);
}

absl::StatusOr<TensorFilter> FilterFromProto(const v1::ListTensorsRequest& proto) {
  TensorFilter filter;
  filter.owner = proto.owner();
  for (const int kind : proto.kinds()) {
    SPARSEFW_ASSIGN_OR_RETURN(const TensorKind converted,
                              FromProto(static_cast<v1::TensorKind>(kind), "kinds"));
    // A message has room for millions, and each would be compared with every tensor.
    if (std::ranges::find(filter.kinds, converted) != filter.kinds.end()) continue;
    filter.kinds.push_back(converted);
  }
  return filter;
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
                            DTypeFromProto(proto.gram_dtype(), "gram_dtype", DType::kF32));
  return spec;
}

v1::TensorSpec ToProto(const TensorSpec& spec) {
  v1::TensorSpec proto;
  proto.set_kind(OnWire<v1::TensorKind>(spec.kind));
  proto.set_dtype(OnWire<v1::DataType>(spec.dtype));
  proto.add_dims(spec.rows);
  proto.add_dims(spec.cols);
  proto.set_token_count(spec.token_count);
  return proto;
}

v1::GramSpec ToProto(const GramSpec& spec) {
  v1::GramSpec proto;
  proto.set_d_in(spec.d_in);
  proto.set_activation_dtype(OnWire<v1::DataType>(spec.activation_dtype));
  proto.set_gram_dtype(OnWire<v1::DataType>(spec.gram_dtype));
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
