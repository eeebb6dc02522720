#include "server/rpc/tensors/chunk_reader.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/slice.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/runtime/tenant_view.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

using google::protobuf::internal::WireFormatLite;

// The start of a field of that wire type.
void AppendLengthDelimited(int field, size_t bytes, std::string* to) {
  google::protobuf::io::StringOutputStream stream(to);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.WriteTag(WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  coded.WriteVarint32(static_cast<uint32_t>(bytes));
}

// Keeps the tensor mapped for as long as gRPC has the slice.
grpc::Slice SliceOf(std::shared_ptr<const TensorHandle> handle, std::span<const std::byte> bytes) {
  // gRPC only reads.
  return grpc::Slice(
      const_cast<std::byte*>(bytes.data()), bytes.size(),
      [](void* owner) { delete static_cast<std::shared_ptr<const TensorHandle>*>(owner); },
      new std::shared_ptr<const TensorHandle>(std::move(handle)));
}

}  // namespace

absl::StatusOr<ChunkReader> ChunkReader::Open(TensorStore& store, std::string_view tenant,
                                              std::string_view name, int64_t offset,
                                              std::optional<int64_t> limit,
                                              const StopSignal* stop) {
  if (offset < 0 || limit.value_or(0) < 0) {
    return Invalid("OFFSET_INVALID", "offset and limit must be at least 0; got offset=%d, limit=%d",
                   offset, limit.value_or(0));
  }
  SPARSEFW_ASSIGN_OR_RETURN(std::shared_ptr<const TensorHandle> handle,
                            WithTensor(store, tenant, name, [&](std::string_view key) {
                              return store.OpenForReading(key, stop);
                            }));
  const int64_t size = handle->info().byte_size;
  if (offset > size) {
    return WithReason(absl::OutOfRangeError(absl::StrFormat(
                          "offset must be at most the %d bytes of %s; got %d", size, name, offset)),
                      "OFFSET_OUT_OF_RANGE", {{"byte_size", std::to_string(size)}});
  }
  const int64_t rest = size - offset;
  return ChunkReader(std::move(handle), offset, offset + std::min(limit.value_or(rest), rest));
}

int64_t ChunkReader::NextMessage(int field, grpc::ByteBuffer* message) {
  const int64_t count = std::min<int64_t>(end_ - offset_, kSuggestedChunkBytes);
  const auto bytes =
      handle_->bytes().subspan(static_cast<size_t>(offset_), static_cast<size_t>(count));
  v1::Chunk chunk;
  chunk.set_offset(offset_);
  chunk.set_crc32c(Crc32c(bytes));
  offset_ += count;

  // `data` is the last field of a chunk, so that it can follow the others as they are.
  std::string inside = chunk.SerializeAsString();
  AppendLengthDelimited(v1::Chunk::kDataFieldNumber, bytes.size(), &inside);
  std::string head;
  AppendLengthDelimited(field, inside.size() + bytes.size(), &head);
  head += inside;
  const grpc::Slice slices[] = {grpc::Slice(head), SliceOf(handle_, bytes)};
  *message = grpc::ByteBuffer(slices, bytes.empty() ? 1 : 2);
  return count;
}

}  // namespace sparsefw::server
