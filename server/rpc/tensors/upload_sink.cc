#include "server/rpc/tensors/upload_sink.h"

#include <span>

#include "server/rpc/convert/convert.h"
#include "server/rpc/runtime/tenant_view.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

std::span<const std::byte> BytesOf(const std::string& data) {
  return std::as_bytes(std::span(data));
}

}  // namespace

// A call without a request_id always makes a new upload.
absl::Status UploadSink::Created(absl::StatusOr<std::variant<UploadInfo, TensorInfo>> created) {
  SPARSEFW_RETURN_IF_ERROR(created.status());
  name_ = key_ = std::get<UploadInfo>(*created).name;
  own_ = true;
  return absl::OkStatus();
}

absl::Status UploadSink::Create(const v1::TensorSpec& spec, const Owner& owner, UploadLife life) {
  SPARSEFW_ASSIGN_OR_RETURN(const TensorSpec converted, FromProto(spec));
  return Created(context_.tensors->CreateUpload(converted, "", owner, life));
}

absl::Status UploadSink::Create(const v1::GramSpec& spec, const Owner& owner, UploadLife life) {
  SPARSEFW_ASSIGN_OR_RETURN(const GramSpec converted, FromProto(spec));
  return Created(context_.tensors->CreateGramUpload(converted, "", owner, life));
}

absl::Status UploadSink::Use(std::string_view tenant, std::string_view name) {
  SPARSEFW_ASSIGN_OR_RETURN(const bool visible, UploadVisible(*context_.tensors, tenant, name));
  name_ = name;
  key_ = visible ? name : kInvisibleName;
  return absl::OkStatus();
}

absl::Status UploadSink::ByItsName(const absl::Status& status) const {
  return absl::IsNotFound(status) ? UploadNotFound(name_) : status;
}

absl::Status UploadSink::Write(const v1::Chunk& chunk) {
  const auto written =
      context_.tensors->Write(key_, chunk.offset(), BytesOf(chunk.data()), chunk.crc32c());
  if (written.ok()) committed_ = *written;
  return ByItsName(written.status());
}

absl::Status UploadSink::Accumulate(int64_t token_offset, const std::string& data,
                                    uint32_t crc32c) {
  const auto summed = context_.tensors->Accumulate(key_, token_offset, BytesOf(data), crc32c);
  if (summed.ok()) committed_ = *summed;
  return ByItsName(summed.status());
}

absl::StatusOr<UploadInfo> UploadSink::Commit() {
  absl::StatusOr<UploadInfo> upload = context_.tensors->Commit(key_);
  if (!upload.ok()) return ByItsName(upload.status());
  return upload;
}

absl::StatusOr<TensorInfo> UploadSink::Finish(std::optional<uint32_t> total_crc32c) {
  absl::StatusOr<TensorInfo> tensor = context_.tensors->Finish(key_, total_crc32c);
  if (!tensor.ok()) return ByItsName(tensor.status());
  finished_ = true;
  return tensor;
}

void UploadSink::Abandon() {
  if (!own_ || finished_) return;
  finished_ = true;
  // It may have expired already; there is nobody left to tell.
  context_.tensors->DeleteUpload(name_).IgnoreError();
}

}  // namespace sparsefw::server
