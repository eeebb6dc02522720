// Where the chunks of a client's stream go: one upload of the tensor store.
#ifndef SPARSEFW_SERVER_RPC_TENSORS_UPLOAD_SINK_H_
#define SPARSEFW_SERVER_RPC_TENSORS_UPLOAD_SINK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/rpc/runtime/rpc_context.h"

namespace sparsefw::server {

// Used by one thread at a time; every method may touch the disk. Errors are
// those of the store.
class UploadSink {
 public:
  explicit UploadSink(RpcContext& context) : context_(context) {}

  // Makes an upload that belongs to this stream. No client knows its name, so
  // Abandon drops it unless it was finished.
  // `life` is not kResumable.
  absl::Status Create(const UploadSpec& spec, const Owner& owner, UploadLife life);
  // Writes to an upload made before, which outlives the stream.
  void Use(std::string_view tenant, std::string_view name);

  // See TensorStore::Append.
  absl::Status Append(UploadKind kind, int64_t offset, const std::string& data, uint32_t crc32c);
  // Keeps an upload that others of the stream are written before from expiring.
  void Touch() { context_.tensors->TouchUpload(key_); }
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
  // About the name that the client knows.
  absl::Status ByItsName(const absl::Status& status) const;

  RpcContext& context_;
  std::string name_;
  std::string key_;  // for the store: name_, or of another tenant's upload one that nothing has
  bool own_ = false;
  bool finished_ = false;
  int64_t committed_ = 0;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_TENSORS_UPLOAD_SINK_H_
