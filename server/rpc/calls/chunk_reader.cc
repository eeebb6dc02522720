#include "server/rpc/calls/chunk_reader.h"

#include <algorithm>

#include "server/rpc/calls/tenant_view.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/runtime/rpc_context.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {

absl::StatusOr<ChunkReader> ChunkReader::Open(TensorStore& store, std::string_view tenant,
                                              std::string_view name, int64_t offset,
                                              int64_t limit) {
  if (offset < 0 || limit < 0) {
    return Invalid("OFFSET_INVALID", "offset and limit must be at least 0; got offset=%d, limit=%d",
                   offset, limit);
  }
  SPARSEFW_ASSIGN_OR_RETURN(std::shared_ptr<const TensorHandle> handle,
                            WithTensor(store, tenant, name, [&store](std::string_view key) {
                              return store.OpenForReading(key);
                            }));
  const int64_t size = handle->info().byte_size;
  if (offset > size) {
    return WithReason(absl::OutOfRangeError(absl::StrFormat(
                          "offset must be at most the %d bytes of %s; got %d", size, name, offset)),
                      "OFFSET_OUT_OF_RANGE", {{"byte_size", std::to_string(size)}});
  }
  const int64_t rest = size - offset;
  return ChunkReader(std::move(handle), offset,
                     offset + (limit == 0 ? rest : std::min(limit, rest)));
}

void ChunkReader::Next(v1::Chunk* chunk) {
  const int64_t count = std::min<int64_t>(end_ - offset_, kSuggestedChunkBytes);
  const auto bytes =
      handle_->bytes().subspan(static_cast<size_t>(offset_), static_cast<size_t>(count));
  chunk->set_offset(offset_);
  chunk->set_data(bytes.data(), bytes.size());
  chunk->set_crc32c(Crc32c(bytes));
  offset_ += count;
}

}  // namespace sparsefw::server
