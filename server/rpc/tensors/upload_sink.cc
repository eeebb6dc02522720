#include "server/rpc/tensors/chunk_sink.h"

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

// Without a request_id it is always a new upload.
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
  key_ = visible ? name : kNobodys;
  return absl::OkStatus();
}

absl::Status UploadSink::Told(const absl::Status& status) const {
  return absl::IsNotFound(status) ? UploadNotFound(name_) : status;
}

absl::Status UploadSink::Write(const v1::Chunk& chunk) {
  const auto written =
      context_.tensors->Write(key_, chunk.offset(), BytesOf(chunk.data()), chunk.crc32c());
  if (written.ok()) committed_ = *written;
  return Told(written.status());
}

absl::Status UploadSink::Accumulate(int64_t token_offset, const std::string& data,
                                    uint32_t crc32c) {
  const auto summed = context_.tensors->Accumulate(key_, token_offset, BytesOf(data), crc32c);
  if (summed.ok()) committed_ = *summed;
  return Told(summed.status());
}

absl::StatusOr<UploadInfo> UploadSink::Commit() {
  absl::StatusOr<UploadInfo> upload = context_.tensors->Commit(key_);
  if (!upload.ok()) return Told(upload.status());
  return upload;
}

absl::StatusOr<TensorInfo> UploadSink::Finish(std::optional<uint32_t> total_crc32c) {
  absl::StatusOr<TensorInfo> tensor = context_.tensors->Finish(key_, total_crc32c);
  if (!tensor.ok()) return Told(tensor.status());
  finished_ = true;
  return tensor;
}

void UploadSink::Abandon() {
  if (!own_ || finished_) return;
  finished_ = true;
  // It may have expired already; there is nobody left to tell.
  context_.tensors->DeleteUpload(name_).IgnoreError();
}

absl::Status WriteTensorStream::Put(const Request& request, UploadSink& upload) {
  return upload.Write(request.chunk());
}

std::optional<uint32_t> WriteTensorStream::TotalCrcOf(const Request& request) {
  if (!request.has_total_crc32c()) return std::nullopt;
  return request.total_crc32c();
}

v1::WriteTensorResponse WriteTensorStream::Unfinished(int64_t committed) {
  Response response;
  response.set_committed_size(committed);
  return response;
}

v1::WriteTensorResponse WriteTensorStream::Finished(const TensorInfo& tensor) {
  Response response = Unfinished(tensor.byte_size);
  *response.mutable_tensor() = ToProto(tensor);
  return response;
}

absl::Status AccumulateGramStream::Put(const Request& request, UploadSink& upload) {
  return upload.Accumulate(request.token_offset(), request.data(), request.crc32c());
}

v1::AccumulateGramResponse AccumulateGramStream::Unfinished(int64_t committed) {
  Response response;
  response.set_committed_tokens(committed);
  return response;
}

v1::AccumulateGramResponse AccumulateGramStream::Finished(const TensorInfo& tensor) {
  Response response = Unfinished(tensor.spec.token_count);
  *response.mutable_gram() = ToProto(tensor);
  return response;
}

template <typename Stream>
absl::Status StreamSink<Stream>::Resolve(const Request& request) {
  if (upload_.open()) {
    if (!request.has_spec() && (!request.has_upload() || request.upload() == upload_.name())) {
      return absl::OkStatus();
    }
    return Invalid("TARGET_INVALID", "only the first message of a stream may name its target");
  }
  if (request.has_spec()) return upload_.Create(request.spec(), owner_, UploadLife::kStream);
  if (request.upload().empty()) {
    return Invalid(
        "TARGET_INVALID",
        "the first message of a stream must name an upload or carry a spec; got neither");
  }
  return upload_.Use(owner_.tenant, request.upload());
}

template <typename Stream>
absl::StatusOr<std::optional<typename Stream::Response>> StreamSink<Stream>::Take(
    const Request& request) {
  SPARSEFW_RETURN_IF_ERROR(Resolve(request));
  if (Stream::HasChunk(request)) SPARSEFW_RETURN_IF_ERROR(Stream::Put(request, upload_));
  if (!request.finish()) return std::nullopt;
  return Finish(request);
}

template <typename Stream>
absl::StatusOr<typename Stream::Response> StreamSink<Stream>::Finish(const Request& request) {
  SPARSEFW_ASSIGN_OR_RETURN(const TensorInfo tensor, upload_.Finish(Stream::TotalCrcOf(request)));
  return Stream::Finished(tensor);
}

template <typename Stream>
absl::StatusOr<typename Stream::Response> StreamSink<Stream>::EndOfStream() {
  if (!upload_.open()) {
    return Invalid("TARGET_INVALID", "the stream ended before its first message");
  }
  if (upload_.own()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "INCOMPLETE",
                  "a stream that carries the spec must set finish on its "
                  "last message; it ended after %d %s",
                  upload_.committed(), Stream::kUnits);
  }
  const absl::StatusOr<UploadInfo> upload = upload_.Commit();
  if (upload.ok()) return Stream::Unfinished(Stream::CommittedOf(*upload));
  if (!absl::IsNotFound(upload.status())) return upload.status();
  // Perhaps it is a tensor by now.
  return Finish(Request());
}

template class StreamSink<WriteTensorStream>;
template class StreamSink<AccumulateGramStream>;

}  // namespace sparsefw::server
