// Where the chunks of a client's stream go: one upload of the tensor store.
#ifndef SPARSEFW_SERVER_RPC_TENSORS_CHUNK_SINK_H_
#define SPARSEFW_SERVER_RPC_TENSORS_CHUNK_SINK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "server/rpc/runtime/rpc_context.h"
#include "sparsefw/v1/tensor_service.pb.h"

namespace sparsefw::server {

// Used by one thread at a time; every method may touch the disk. Errors are
// those of the store.
class UploadSink {
 public:
  explicit UploadSink(RpcContext& context) : context_(context) {}

  // Makes an upload that belongs to this stream. No client knows its name, so
  // Abandon drops it unless it was finished.
  // `life` is not kResumable.
  absl::Status Create(const v1::TensorSpec& spec, const Owner& owner, UploadLife life);
  absl::Status Create(const v1::GramSpec& spec, const Owner& owner, UploadLife life);
  // Writes to an upload made before, which outlives the stream.
  absl::Status Use(std::string_view tenant, std::string_view name);

  absl::Status Write(const v1::Chunk& chunk);
  absl::Status Accumulate(int64_t token_offset, const std::string& data, uint32_t crc32c);
  absl::StatusOr<UploadInfo> Commit();
  absl::StatusOr<TensorInfo> Finish(std::optional<uint32_t> total_crc32c);
  void Abandon();

  const std::string& name() const { return name_; }
  bool open() const { return !name_.empty(); }
  bool own() const { return own_; }
  // Bytes, or tokens of an accumulation, as of the last chunk of this stream. On the
  // disk only once the store says so.
  int64_t committed() const { return committed_; }

 private:
  absl::Status Created(absl::StatusOr<std::variant<UploadInfo, TensorInfo>> created);

  // About the name that the client knows.
  absl::Status Told(const absl::Status& status) const;

  RpcContext& context_;
  std::string name_;
  std::string key_;  // for the store: name_, or of another tenant's upload one that nothing has
  bool own_ = false;
  bool finished_ = false;
  int64_t committed_ = 0;
};

// The messages of WriteTensor.
struct WriteTensorStream {
  using Request = v1::WriteTensorRequest;
  using Response = v1::WriteTensorResponse;
  static constexpr std::string_view kMethod = "TensorService/WriteTensor";
  static constexpr std::string_view kUnits = "bytes";
  static Executor* ExecutorOf(const RpcContext& context) { return context.data_executor; }
  static const std::string& DataOf(const Request& request) { return request.chunk().data(); }
  static bool HasChunk(const Request& request) { return request.has_chunk(); }
  static absl::Status Put(const Request& request, UploadSink& upload);
  static std::optional<uint32_t> TotalCrcOf(const Request& request);
  static int64_t CommittedOf(const UploadInfo& upload) { return upload.committed_size; }
  static Response Unfinished(int64_t committed);
  static Response Finished(const TensorInfo& tensor);
};

// The messages of AccumulateGram.
struct AccumulateGramStream {
  using Request = v1::AccumulateGramRequest;
  using Response = v1::AccumulateGramResponse;
  static constexpr std::string_view kMethod = "TensorService/AccumulateGram";
  static constexpr std::string_view kUnits = "tokens";
  static Executor* ExecutorOf(const RpcContext& context) { return context.sums_executor; }
  static const std::string& DataOf(const Request& request) { return request.data(); }
  static bool HasChunk(const Request& request) { return !request.data().empty(); }
  static absl::Status Put(const Request& request, UploadSink& upload);
  static std::optional<uint32_t> TotalCrcOf(const Request& /*request*/) { return std::nullopt; }
  static int64_t CommittedOf(const UploadInfo& upload) { return upload.committed_tokens; }
  static Response Unfinished(int64_t committed);
  static Response Finished(const TensorInfo& tensor);
};

// Takes the messages of one stream in order.
template <typename Stream>
class StreamSink {
 public:
  using Request = typename Stream::Request;
  using Response = typename Stream::Response;

  explicit StreamSink(RpcContext& context) : upload_(context) {}

  // Who owns what the stream makes, and whose uploads it may name; before the first
  // message.
  void SetTenant(const std::string& tenant) { owner_.tenant = tenant; }

  // A response when the upload is finished.
  // Errors: InvalidArgument  the first message names no upload and has no spec,
  //                          or a later one names another upload (TARGET_INVALID)
  absl::StatusOr<std::optional<Response>> Take(const Request& request);
  // The client sent no `finish`: what came is committed and kept for later.
  // Errors: FailedPrecondition  an upload of this stream's own (INCOMPLETE)
  absl::StatusOr<Response> EndOfStream();
  void Abandon() { upload_.Abandon(); }

 private:
  absl::Status Resolve(const Request& request);
  absl::StatusOr<Response> Finish(const Request& request);

  Owner owner_;
  UploadSink upload_;
};

extern template class StreamSink<WriteTensorStream>;
extern template class StreamSink<AccumulateGramStream>;

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_TENSORS_CHUNK_SINK_H_
