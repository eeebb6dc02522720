// The messages of one WriteTensor or AccumulateGram stream, in order, into one upload.
#ifndef SPARSEFW_SERVER_RPC_TENSORS_UPLOAD_STREAM_H_
#define SPARSEFW_SERVER_RPC_TENSORS_UPLOAD_STREAM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "server/rpc/convert/convert.h"
#include "server/rpc/tensors/upload_sink.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/v1/tensor_service.pb.h"

namespace sparsefw::server {

// Used by one thread at a time; may touch the disk. Errors: UploadSink's, and those below.
template <typename Request, typename Response>
class UploadStream {
 public:
  static constexpr bool kSums = std::is_same_v<Request, v1::AccumulateGramRequest>;

  explicit UploadStream(RpcContext& context) : upload_(context) {}

  // Who owns what the stream makes, and whose uploads it may name; before the first message.
  void SetTenant(const std::string& tenant) { owner_.tenant = tenant; }

  static const std::string& DataOf(const Request& request) {
    if constexpr (kSums) {
      return request.data();
    } else {
      return request.chunk().data();
    }
  }

  // Errors: InvalidArgument  the upload's name is longer than any (TARGET_INVALID)
  static absl::Status CheckName(const Request& request) {
    constexpr size_t kLongest = 256;
    if (request.upload().size() <= kLongest) return absl::OkStatus();
    return Invalid("TARGET_INVALID", "the name of an upload must have at most %d bytes; got %d",
                   kLongest, request.upload().size());
  }

  // A response when the upload is finished.
  // Errors: InvalidArgument  the first message names no upload and has no spec, or a later one
  //                          names another upload (TARGET_INVALID)
  absl::StatusOr<std::optional<Response>> Take(const Request& request) {
    SPARSEFW_RETURN_IF_ERROR(Resolve(request));
    if constexpr (kSums) {
      if (!request.data().empty()) {
        SPARSEFW_RETURN_IF_ERROR(upload_.Append(UploadKind::kGram, request.token_offset(),
                                                request.data(), request.crc32c()));
      }
    } else if (request.has_chunk()) {
      const v1::Chunk& chunk = request.chunk();
      SPARSEFW_RETURN_IF_ERROR(
          upload_.Append(UploadKind::kTensor, chunk.offset(), chunk.data(), chunk.crc32c()));
    }
    if (!request.finish()) return std::nullopt;
    return Finish(request);
  }

  // The client sent no `finish`: what came is committed and kept for later.
  // Errors: FailedPrecondition  an upload of this stream's own (INCOMPLETE)
  absl::StatusOr<Response> EndOfStream() {
    if (!upload_.open()) {
      return Invalid("TARGET_INVALID", "the stream ended before its first message");
    }
    if (upload_.own()) {
      return Refuse(absl::StatusCode::kFailedPrecondition, "INCOMPLETE",
                    "a stream that carries the spec must set finish on its "
                    "last message; it ended after %d %s",
                    upload_.committed(), kSums ? "tokens" : "bytes");
    }
    const absl::StatusOr<UploadInfo> upload = upload_.Commit();
    if (absl::IsNotFound(upload.status())) return Finish(Request());  // perhaps a tensor by now
    if (!upload.ok()) return upload.status();
    return Committed(kSums ? upload->committed_tokens : upload->committed_size);
  }

  void Abandon() { upload_.Abandon(); }

 private:
  absl::Status Resolve(const Request& request) {
    if (upload_.open()) {
      if (!request.has_spec() && (!request.has_upload() || request.upload() == upload_.name())) {
        return absl::OkStatus();
      }
      return Invalid("TARGET_INVALID", "only the first message of a stream may name its target");
    }
    if (request.has_spec()) {
      SPARSEFW_ASSIGN_OR_RETURN(const auto spec, FromProto(request.spec()));
      return upload_.Create(spec, owner_, UploadLife::kStream);
    }
    if (request.upload().empty()) {
      return Invalid(
          "TARGET_INVALID",
          "the first message of a stream must name an upload or carry a spec; got neither");
    }
    upload_.Use(owner_.tenant, request.upload());
    return absl::OkStatus();
  }
  absl::StatusOr<Response> Finish(const Request& request) {
    std::optional<uint32_t> total_crc32c;
    if constexpr (!kSums) {
      if (request.has_total_crc32c()) total_crc32c = request.total_crc32c();
    }
    SPARSEFW_ASSIGN_OR_RETURN(const TensorInfo tensor, upload_.Finish(total_crc32c));
    Response response = Committed(kSums ? tensor.spec.token_count : tensor.byte_size);
    if constexpr (kSums) {
      *response.mutable_gram() = ToProto(tensor);
    } else {
      *response.mutable_tensor() = ToProto(tensor);
    }
    return response;
  }
  static Response Committed(int64_t count) {
    Response response;
    if constexpr (kSums) {
      response.set_committed_tokens(count);
    } else {
      response.set_committed_size(count);
    }
    return response;
  }

  Owner owner_;
  UploadSink upload_;
};

using WriteTensorStream = UploadStream<v1::WriteTensorRequest, v1::WriteTensorResponse>;
using AccumulateGramStream = UploadStream<v1::AccumulateGramRequest, v1::AccumulateGramResponse>;

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_TENSORS_UPLOAD_STREAM_H_
