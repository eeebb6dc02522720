// Client::UploadTensor and Client::UploadGramFromActivations.
#include <grpcpp/support/sync_stream.h>

#include <algorithm>

#include "client/cpp/src/resumable_upload.h"
#include "client/cpp/src/rpc.h"
#include "sparsefw/client/client.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::client {
namespace {

using internal::CancelOnStop;
using internal::Rpc;

absl::Status Unfinished(const char* method) {
  return Refuse(absl::StatusCode::kInternal, "PROTOCOL", "%s ended without the finished tensor",
                method);
}

void Report(const TransferCallback& progress, int64_t done, int64_t total) {
  if (progress) progress(TransferProgress{done, total});
}

class TensorContent final : public internal::UploadContent {
 public:
  TensorContent(const Rpc& rpc, const v1::TensorSpec& spec, std::span<const std::byte> bytes,
                const TransferCallback& progress, const CallOptions& call)
      : rpc_(rpc), spec_(spec), bytes_(bytes), progress_(progress), call_(call) {}

  v1::CreateUploadRequest CreateRequest() const override {
    v1::CreateUploadRequest request;
    *request.mutable_tensor() = spec_;
    return request;
  }
  int64_t Committed(const v1::Upload& upload) const override { return upload.committed_size(); }
  std::string CommittedKey() const override { return "committed_size"; }
  int64_t total() const override { return static_cast<int64_t>(bytes_.size()); }

  absl::StatusOr<v1::Tensor> SendFrom(const std::string& upload, int64_t from) override {
    grpc::ClientContext context;
    rpc_.AddMetadata(&context);
    const CancelOnStop cancel(call_, &context);
    v1::WriteTensorResponse response;
    const auto stream = rpc_.data().WriteTensor(&context, &response);
    v1::WriteTensorRequest request;
    request.set_upload(upload);
    Report(progress_, from, total());
    int64_t offset = from;
    do {
      const int64_t size = std::min(rpc_.options().chunk_bytes, total() - offset);
      const auto data = bytes_.subspan(static_cast<size_t>(offset), static_cast<size_t>(size));
      v1::Chunk& chunk = *request.mutable_chunk();
      chunk.set_offset(offset);
      chunk.set_crc32c(Crc32c(data));
      chunk.set_data(data.data(), data.size());
      offset += size;
      if (offset == total()) {
        request.set_finish(true);
        request.set_total_crc32c(TotalCrc());
      }
      if (!stream->Write(request)) break;
      request.clear_target();
      Report(progress_, offset, total());
    } while (offset < total());
    stream->WritesDone();
    SPARSEFW_RETURN_IF_ERROR(rpc_.StreamStatus(stream->Finish(), call_));
    if (!response.has_tensor()) return Unfinished("WriteTensor");
    return response.tensor();
  }

 private:
  // Computed once, when the first stream gets to the end.
  uint32_t TotalCrc() {
    if (!total_crc_) total_crc_ = Crc32c(bytes_);
    return *total_crc_;
  }

  const Rpc& rpc_;
  const v1::TensorSpec& spec_;
  const std::span<const std::byte> bytes_;
  const TransferCallback& progress_;
  const CallOptions& call_;
  std::optional<uint32_t> total_crc_;
};

class ActivationContent final : public internal::UploadContent {
 public:
  // `batches` are whole tokens of `row_bytes`.
  ActivationContent(const Rpc& rpc, const v1::GramSpec& spec,
                    std::span<const std::span<const std::byte>> batches, int64_t row_bytes,
                    const TransferCallback& progress, const CallOptions& call)
      : rpc_(rpc),
        spec_(spec),
        batches_(batches),
        row_bytes_(row_bytes),
        progress_(progress),
        call_(call) {
    for (const auto& batch : batches) total_ += static_cast<int64_t>(batch.size()) / row_bytes;
  }

  v1::CreateUploadRequest CreateRequest() const override {
    v1::CreateUploadRequest request;
    *request.mutable_gram() = spec_;
    return request;
  }
  int64_t Committed(const v1::Upload& upload) const override { return upload.committed_tokens(); }
  std::string CommittedKey() const override { return "committed_tokens"; }
  int64_t total() const override { return total_; }

  absl::StatusOr<v1::Tensor> SendFrom(const std::string& upload, int64_t from) override {
    grpc::ClientContext context;
    rpc_.AddMetadata(&context);
    const CancelOnStop cancel(call_, &context);
    v1::AccumulateGramResponse response;
    const auto stream = rpc_.data().AccumulateGram(&context, &response);
    v1::AccumulateGramRequest request;
    request.set_upload(upload);
    const int64_t rows_per_chunk = std::max<int64_t>(1, rpc_.options().chunk_bytes / row_bytes_);
    Report(progress_, from * row_bytes_, total() * row_bytes_);
    int64_t token = from;
    do {
      const auto data = Chunk(token, rows_per_chunk);
      request.set_token_offset(token);
      request.set_crc32c(Crc32c(data));
      request.set_data(data.data(), data.size());
      token += static_cast<int64_t>(data.size()) / row_bytes_;
      request.set_finish(token == total());
      if (!stream->Write(request)) break;
      request.clear_target();
      Report(progress_, token * row_bytes_, total() * row_bytes_);
    } while (token < total());
    stream->WritesDone();
    SPARSEFW_RETURN_IF_ERROR(rpc_.StreamStatus(stream->Finish(), call_));
    if (!response.has_gram()) return Unfinished("AccumulateGram");
    return response.gram();
  }

 private:
  // At most so many tokens of one batch, from this token on; empty after the last.
  std::span<const std::byte> Chunk(int64_t token, int64_t most) const {
    for (const auto& batch : batches_) {
      const int64_t rows = static_cast<int64_t>(batch.size()) / row_bytes_;
      if (token < rows) {
        return batch.subspan(static_cast<size_t>(token * row_bytes_),
                             static_cast<size_t>(std::min(most, rows - token) * row_bytes_));
      }
      token -= rows;
    }
    return {};
  }

  const Rpc& rpc_;
  const v1::GramSpec& spec_;
  const std::span<const std::span<const std::byte>> batches_;
  const int64_t row_bytes_;
  int64_t total_ = 0;
  const TransferCallback& progress_;
  const CallOptions& call_;
};

}  // namespace

absl::StatusOr<v1::Tensor> Client::UploadTensor(const v1::TensorSpec& spec,
                                                std::span<const std::byte> bytes,
                                                const TransferCallback& progress,
                                                const CallOptions& call,
                                                const std::string& request_id) {
  SPARSEFW_ASSIGN_OR_RETURN(const int64_t size, ByteSize(spec));
  if (size != static_cast<int64_t>(bytes.size())) {
    return Invalid("CLIENT_ARGUMENT", "dims and dtype ask for %d bytes; got %d", size,
                   bytes.size());
  }
  TensorContent content(*rpc_, spec, bytes, progress, call);
  return internal::RunUpload(*rpc_, content, call, request_id);
}

absl::StatusOr<v1::Tensor> Client::UploadGramFromActivations(const v1::GramSpec& spec,
                                                             std::span<const std::byte> activations,
                                                             const TransferCallback& progress,
                                                             const CallOptions& call,
                                                             const std::string& request_id) {
  return UploadGramFromBatches(spec, std::span(&activations, 1), progress, call, request_id);
}

absl::StatusOr<v1::Tensor> Client::UploadGramFromBatches(
    const v1::GramSpec& spec, std::span<const std::span<const std::byte>> batches,
    const TransferCallback& progress, const CallOptions& call, const std::string& request_id) {
  const auto dtype = FromProto(spec.activation_dtype());
  if (!dtype || spec.d_in() < 1)
    return Invalid("CLIENT_ARGUMENT", "activations need a dtype and a d_in of at least 1");
  const int64_t widest = ClientOptions::kMaxChunkBytes / static_cast<int64_t>(SizeOf(*dtype));
  if (spec.d_in() > widest) {
    return Invalid("CLIENT_ARGUMENT", "d_in must be at most %d, one token to a message; got %d",
                   widest, spec.d_in());
  }
  const int64_t row_bytes = spec.d_in() * static_cast<int64_t>(SizeOf(*dtype));
  if (batches.empty())
    return Invalid("CLIENT_ARGUMENT", "there must be at least one batch of activations");
  for (const auto& batch : batches) {
    if (!batch.empty() && static_cast<int64_t>(batch.size()) % row_bytes == 0) continue;
    return Invalid("CLIENT_ARGUMENT", "activations must be whole tokens of %d bytes; got %d bytes",
                   row_bytes, batch.size());
  }
  ActivationContent content(*rpc_, spec, batches, row_bytes, progress, call);
  return internal::RunUpload(*rpc_, content, call, request_id);
}

}  // namespace sparsefw::client
