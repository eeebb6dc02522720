// Cuts a stored tensor into chunks for the wire.
#ifndef SPARSEFW_SERVER_RPC_TENSORS_CHUNK_READER_H_
#define SPARSEFW_SERVER_RPC_TENSORS_CHUNK_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/stop_signal.h"
#include "sparsefw/v1/tensor.pb.h"

namespace sparsefw::server {

// Holds the tensor open, which does not keep it from being deleted. Not thread-safe.
class ChunkReader {
 public:
  // The bytes [offset, offset + limit) of one of the tenant's; without a limit to the end. `stop`
  // ends the check of a tensor of an earlier run.
  // Errors: OutOfRange       offset beyond the end (OFFSET_OUT_OF_RANGE)
  //         InvalidArgument  negative offset or limit (OFFSET_INVALID)
  //         NotFound         TENSOR_NOT_FOUND
  static absl::StatusOr<ChunkReader> Open(TensorStore& store, std::string_view tenant,
                                          std::string_view name, int64_t offset,
                                          std::optional<int64_t> limit, const StopSignal* stop);

  bool at_end() const { return offset_ == end_; }
  // The last byte of the tensor has been handed out.
  bool complete() const { return offset_ == handle_->info().byte_size; }
  const std::string& name() const { return handle_->info().name; }
  // The next chunk, at most 1 MiB with its CRC32C, as the only field of a message. Its data
  // are those of the mapped file: a message that nobody reads takes no memory of its own.
  // Returns the number of bytes of data.
  int64_t NextMessage(int field, grpc::ByteBuffer* message);

 private:
  ChunkReader(std::shared_ptr<const TensorHandle> handle, int64_t offset, int64_t end)
      : handle_(std::move(handle)), offset_(offset), end_(end) {}

  std::shared_ptr<const TensorHandle> handle_;
  int64_t offset_;
  int64_t end_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_TENSORS_CHUNK_READER_H_
