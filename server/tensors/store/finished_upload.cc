// What clients send for an upload that is a tensor by now: the answer to the stream that finished
// it was lost, or two streams write it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/tensors/spec.h"
#include "server/tensors/store/spooled_tensor_store.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// OK stays OK.
absl::Status WithPosition(const absl::Status& status, const char* name, int64_t position) {
  return WithMetadata(status, name, absl::StrFormat("%d", position));
}

absl::Status CheckInside(int64_t offset, int64_t count, int64_t units, std::string_view unit) {
  return PlanAppend(offset, count, units, units, unit).status();
}

}  // namespace

absl::StatusOr<std::shared_ptr<StoredTensor>> SpooledTensorStore::FindFinished(
    std::string_view upload) {
  MutexLock lock(mutex_);
  std::shared_ptr<StoredTensor> tensor = tensors_.Find(IdOf(upload, kUploadPrefix));
  if (tensor == nullptr || !tensor->origin().from_upload) return UploadNotFound(upload);
  return tensor;
}

absl::StatusOr<TensorInfo> SpooledTensorStore::FinishedBefore(
    std::string_view upload, std::optional<uint32_t> total_crc32c) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<StoredTensor> tensor, FindFinished(upload));
  TensorInfo info = tensor->Info();
  if (total_crc32c && *total_crc32c != info.crc32c) {
    return WithReason(absl::DataLossError(absl::StrFormat(
                          "total_crc32c must be the checksum of %s, 0x%08x; got 0x%08x", info.name,
                          info.crc32c, *total_crc32c)),
                      "CHECKSUM_MISMATCH",
                      {{"committed_size", absl::StrFormat("%d", info.byte_size)}});
  }
  return info;
}

absl::StatusOr<int64_t> SpooledTensorStore::WriteAgain(std::string_view upload, int64_t offset,
                                                       std::span<const std::byte> data,
                                                       uint32_t crc32c) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<StoredTensor> tensor, FindFinished(upload));
  const TensorInfo info = tensor->Info();
  const auto refused = [&info](const absl::Status& status) {
    return WithPosition(status, "committed_size", info.byte_size);
  };
  if (tensor->origin().gram.has_value()) return refused(WrongUploadKind(upload, UploadKind::kGram));
  SPARSEFW_RETURN_IF_ERROR(refused(CheckChunk(offset, data, crc32c)));
  const auto size = static_cast<int64_t>(data.size());
  SPARSEFW_RETURN_IF_ERROR(refused(CheckInside(offset, size, info.byte_size, "bytes")));
  const auto handle = OpenForReading(info.name);
  if (absl::IsNotFound(handle.status())) return UploadNotFound(upload);
  SPARSEFW_RETURN_IF_ERROR(handle.status());
  const std::span<const std::byte> there =
      (*handle)->bytes().subspan(static_cast<size_t>(offset), data.size());
  const auto differing = std::ranges::mismatch(data, there);
  if (differing.in1 == data.end()) return info.byte_size;
  return refused(BytesDiffer(offset + (differing.in1 - data.begin())));
}

// The activations are not kept: what can be told is whether the sum has tokens at these
// positions. They are skipped unseen, as those of an open accumulation are.
absl::StatusOr<int64_t> SpooledTensorStore::AccumulateAgain(std::string_view upload,
                                                            int64_t token_offset,
                                                            std::span<const std::byte> data,
                                                            uint32_t crc32c) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<StoredTensor> tensor, FindFinished(upload));
  const std::optional<GramSpec>& gram = tensor->origin().gram;
  const TensorInfo info = tensor->Info();
  if (!gram.has_value()) {
    return WithPosition(WrongUploadKind(upload, UploadKind::kTensor), "committed_size",
                        info.byte_size);
  }
  const int64_t tokens = info.spec.token_count;
  const auto refused = [tokens](const absl::Status& status) {
    return WithPosition(status, "committed_tokens", tokens);
  };
  SPARSEFW_RETURN_IF_ERROR(refused(CheckChunk(token_offset, data, crc32c)));
  const absl::StatusOr<int64_t> count = TokensIn(*gram, data.size());
  SPARSEFW_RETURN_IF_ERROR(refused(count.status()));
  SPARSEFW_RETURN_IF_ERROR(refused(CheckInside(token_offset, *count, tokens, "tokens")));
  return tokens;
}

}  // namespace sparsefw::server
