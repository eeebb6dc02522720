// What clients send for an upload that is a tensor by now: the answer to the stream that finished
// it was lost, or two streams write it.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "server/tensors/tensor_spec.h"
#include "server/tensors/tensor_store.h"
#include "server/tensors/uploads/upload.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
absl::StatusOr<std::shared_ptr<StoredTensor>> TensorStore::FindFinished(std::string_view upload) {
  MutexLock lock(mutex_);
  std::shared_ptr<StoredTensor> tensor = tensors_.Find(IdOf(upload, kUploadPrefix));
  if (tensor == nullptr || !tensor->origin().from_upload) return UploadNotFound(upload);
  return tensor;
}

absl::StatusOr<TensorInfo> TensorStore::FinishedBefore(std::string_view upload,
                                                       std::optional<uint32_t> total_crc32c) {
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

absl::StatusOr<int64_t> TensorStore::AppendAgain(std::string_view upload, UploadKind kind,
                                                 int64_t offset, std::span<const std::byte> data,
                                                 uint32_t crc32c) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<StoredTensor> tensor, FindFinished(upload));
  const std::optional<GramSpec>& gram = tensor->origin().gram;
  const UploadKind own = gram.has_value() ? UploadKind::kGram : UploadKind::kTensor;
  const bool sums = gram.has_value() && kind == own;
  const TensorInfo info = tensor->Info();
  const int64_t committed = sums ? info.spec.token_count : info.byte_size;
  const auto refused = [&](const absl::Status& status) {  // OK stays OK
    return WithMetadata(status, sums ? "committed_tokens" : "committed_size",
                        absl::StrFormat("%d", committed));
  };
  if (kind != own) return refused(WrongUploadKind(upload, own));
  SPARSEFW_RETURN_IF_ERROR(refused(CheckChunk(offset, data, crc32c)));
  const absl::StatusOr<int64_t> count =
      sums ? TokensIn(*gram, data.size()) : static_cast<int64_t>(data.size());
  SPARSEFW_RETURN_IF_ERROR(refused(count.status()));
  SPARSEFW_RETURN_IF_ERROR(refused(
      PlanAppend(offset, *count, committed, committed, sums ? "tokens" : "bytes").status()));
  // The activations are not kept: what can be seen is whether the sum has tokens at these
  // positions. They are skipped unseen, as those of an open accumulation are.
  if (sums) return committed;
  const auto handle = OpenForReading(info.name, &stopping_);
  if (absl::IsNotFound(handle.status())) return UploadNotFound(upload);
  SPARSEFW_RETURN_IF_ERROR(handle.status());
  const std::span<const std::byte> there =
      (*handle)->bytes().subspan(static_cast<size_t>(offset), data.size());
  const auto differing = std::ranges::mismatch(data, there);
  if (differing.in1 == data.end()) return committed;
  return refused(BytesDiffer(offset + (differing.in1 - data.begin())));
}

}  // namespace sparsefw::server
