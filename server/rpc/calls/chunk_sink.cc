#include "server/rpc/calls/chunk_sink.h"

#include <span>
#include <variant>

#include "server/rpc/convert/common.h"
#include "server/rpc/convert/convert.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

std::span<const std::byte> BytesOf(const std::string& data) {
  return std::as_bytes(std::span(data));
}

// For chunks that the store does not see.
absl::Status CheckCrc(const std::string& data, uint32_t expected) {
  const uint32_t actual = Crc32c(BytesOf(data));
  if (actual == expected) return absl::OkStatus();
  return WithReason(
      absl::DataLossError(absl::StrFormat(
          "crc32c of the chunk must be 0x%08x as sent with it; got 0x%08x", expected, actual)),
      "CHECKSUM_MISMATCH");
}

// A spec without a request_id always makes a new upload.
absl::StatusOr<std::string> NewUploadName(
    absl::StatusOr<std::variant<UploadInfo, TensorInfo>> created) {
  SPARSEFW_RETURN_IF_ERROR(created.status());
  return std::get<UploadInfo>(*created).name;
}

absl::Status NotFinished(std::string_view what, int64_t committed) {
  return WithReason(absl::FailedPreconditionError(
                        absl::StrFormat("a stream that carries the spec must set finish on its "
                                        "last message; it ended after %d %s",
                                        committed, what)),
                    "INCOMPLETE");
}

}  // namespace

absl::StatusOr<std::string> UploadTarget::Create(const v1::TensorSpec& spec) {
  SPARSEFW_ASSIGN_OR_RETURN(const TensorSpec converted, FromProto(spec));
  return NewUploadName(context_.tensors->CreateUpload(converted, "", ""));
}

absl::StatusOr<std::string> UploadTarget::Create(const v1::GramSpec& spec) {
  SPARSEFW_ASSIGN_OR_RETURN(const GramSpec converted, FromProto(spec));
  return NewUploadName(context_.tensors->CreateGramUpload(converted, "", ""));
}

template <typename Spec>
absl::Status UploadTarget::Resolve(bool has_name, std::string_view named, const Spec* spec) {
  if (chosen()) {
    if (spec == nullptr && (!has_name || named == name_)) return absl::OkStatus();
    return Invalid("TARGET_INVALID", "only the first message of a stream may name its target");
  }
  if (spec != nullptr) {
    SPARSEFW_ASSIGN_OR_RETURN(name_, Create(*spec));
    own_ = true;
    return absl::OkStatus();
  }
  if (named.empty()) {
    return Invalid(
        "TARGET_INVALID",
        "the first message of a stream must name an upload or carry a spec; got neither");
  }
  name_ = named;
  return absl::OkStatus();
}

void UploadTarget::Abandon() {
  if (!own_ || finished_) return;
  finished_ = true;
  // It may have expired already; there is nobody left to tell.
  context_.tensors->DeleteUpload(name_).IgnoreError();
}

absl::StatusOr<std::optional<v1::WriteTensorResponse>> WriteTensorSink::Take(
    const Request& request) {
  const bool first = !target_.chosen();
  SPARSEFW_RETURN_IF_ERROR(target_.Resolve(request.has_upload(), request.upload(),
                                           request.has_spec() ? &request.spec() : nullptr));
  if (request.has_chunk()) {
    const v1::Chunk& chunk = request.chunk();
    absl::StatusOr<int64_t> committed = context_.tensors->Write(
        target_.name(), chunk.offset(), BytesOf(chunk.data()), chunk.crc32c());
    // Perhaps the answer to the stream that finished it was lost.
    if (first && absl::IsNotFound(committed.status())) {
      SPARSEFW_RETURN_IF_ERROR(CheckCrc(chunk.data(), chunk.crc32c()));
      if (auto response = Finish(request); response.ok()) return response;
    }
    SPARSEFW_ASSIGN_OR_RETURN(committed_, std::move(committed));
  }
  if (!request.finish()) return std::optional<Response>();
  return Finish(request);
}

absl::StatusOr<std::optional<v1::WriteTensorResponse>> WriteTensorSink::Finish(
    const Request& request) {
  std::optional<uint32_t> total;
  if (request.has_total_crc32c()) total = request.total_crc32c();
  SPARSEFW_ASSIGN_OR_RETURN(const TensorInfo tensor,
                            context_.tensors->Finish(target_.name(), total));
  target_.MarkFinished();
  std::optional<Response> response(std::in_place);
  response->set_committed_size(tensor.byte_size);
  *response->mutable_tensor() = ToProto(tensor);
  return response;
}

absl::StatusOr<v1::WriteTensorResponse> WriteTensorSink::EndOfStream() {
  if (!target_.chosen()) {
    return Invalid("TARGET_INVALID", "the stream ended before its first message");
  }
  if (target_.own()) return NotFinished("bytes", committed_);
  Response response;
  response.set_committed_size(committed_);
  if (committed_ > 0) return response;
  // No chunk came: the client only asks, perhaps about an upload that is a tensor by now.
  if (const auto upload = context_.tensors->GetUpload(target_.name()); upload.ok()) {
    response.set_committed_size(upload->committed_size);
    return response;
  }
  SPARSEFW_ASSIGN_OR_RETURN(const std::optional<Response> finished, Finish(Request()));
  return *finished;
}

absl::StatusOr<std::optional<v1::AccumulateGramResponse>> AccumulateGramSink::Take(
    const Request& request) {
  const bool first = !target_.chosen();
  SPARSEFW_RETURN_IF_ERROR(target_.Resolve(request.has_upload(), request.upload(),
                                           request.has_spec() ? &request.spec() : nullptr));
  if (!request.data().empty()) {
    absl::StatusOr<int64_t> committed = context_.tensors->Accumulate(
        target_.name(), request.token_offset(), BytesOf(request.data()), request.crc32c());
    if (first && absl::IsNotFound(committed.status())) {
      SPARSEFW_RETURN_IF_ERROR(CheckCrc(request.data(), request.crc32c()));
      if (auto response = Finish(); response.ok()) return response;
    }
    SPARSEFW_ASSIGN_OR_RETURN(committed_, std::move(committed));
  }
  if (!request.finish()) return std::optional<Response>();
  return Finish();
}

absl::StatusOr<std::optional<v1::AccumulateGramResponse>> AccumulateGramSink::Finish() {
  SPARSEFW_ASSIGN_OR_RETURN(const TensorInfo tensor,
                            context_.tensors->Finish(target_.name(), std::nullopt));
  target_.MarkFinished();
  std::optional<Response> response(std::in_place);
  response->set_committed_tokens(tensor.spec.token_count);
  *response->mutable_gram() = ToProto(tensor);
  return response;
}

absl::StatusOr<v1::AccumulateGramResponse> AccumulateGramSink::EndOfStream() {
  if (!target_.chosen()) {
    return Invalid("TARGET_INVALID", "the stream ended before its first message");
  }
  if (target_.own()) return NotFinished("tokens", committed_);
  Response response;
  response.set_committed_tokens(committed_);
  if (committed_ > 0) return response;
  if (const auto upload = context_.tensors->GetUpload(target_.name()); upload.ok()) {
    response.set_committed_tokens(upload->committed_tokens);
    return response;
  }
  SPARSEFW_ASSIGN_OR_RETURN(const std::optional<Response> finished, Finish());
  return *finished;
}

}  // namespace sparsefw::server
