#include "server/rpc/tensors/upload_sink.h"

#include <span>
#include <variant>

#include "server/rpc/runtime/tenant_view.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
absl::Status UploadSink::Create(const UploadSpec& spec, const Owner& owner, UploadLife life) {
  SPARSEFW_ASSIGN_OR_RETURN(const auto created,
                            context_.tensors->CreateUpload(spec, "", owner, life));
  // A call without a request_id always makes a new upload.
  name_ = key_ = std::get<UploadInfo>(created).name;
  own_ = true;
  return absl::OkStatus();
}

void UploadSink::Use(std::string_view tenant, std::string_view name) {
  name_ = name;
  key_ = UploadVisible(*context_.tensors, tenant, name) ? name : kInvisibleName;
}

absl::Status UploadSink::ByItsName(const absl::Status& status) const {
  return absl::IsNotFound(status) ? UploadNotFound(name_) : status;
}

absl::Status UploadSink::Append(UploadKind kind, int64_t offset, const std::string& data,
                                uint32_t crc32c) {
  const auto appended =
      context_.tensors->Append(key_, kind, offset, std::as_bytes(std::span(data)), crc32c);
  if (appended.ok()) committed_ = *appended;
  return ByItsName(appended.status());
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
