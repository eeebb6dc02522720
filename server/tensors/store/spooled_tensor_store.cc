#include "server/tensors/store/spooled_tensor_store.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "server/tensors/random_id.h"
#include "server/tensors/spec.h"
#include "server/tensors/store/page_token.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr std::string_view kUploadPrefix = "uploads/";
constexpr std::string_view kTensorPrefix = "tensors/";

// Empty, which no id is, for the name of anything else.
std::string_view IdOf(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : std::string_view();
}

absl::Status TensorNotFound(std::string_view name) {
  return Refuse(absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND",
                "a tensor must exist to be used; got \"%s\"", Printable(name));
}

absl::Status InvalidOption(std::string_view message) {
  return Invalid("OPTION_INVALID", "%s", message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorStore>> TensorStore::Open(TensorStoreOptions options) {
  SPARSEFW_ASSIGN_OR_RETURN(std::shared_ptr<Spool> spool, OpenSpoolFolder(options.spool_dir));
  return SpooledTensorStore::Create(std::move(options), std::move(spool));
}

absl::StatusOr<std::unique_ptr<TensorStore>> SpooledTensorStore::Create(
    TensorStoreOptions options, std::shared_ptr<Spool> spool) {
  if (options.gram_backend == nullptr) {
    return InvalidOption("gram_backend must be set; got none");
  }
  if (options.budget_bytes < 1 || options.max_tensor_bytes < 1 || options.max_entries < 1) {
    return InvalidOption(absl::StrFormat(
        "budget_bytes, max_tensor_bytes and max_entries must be at least 1; got %d, %d and %d",
        options.budget_bytes, options.max_tensor_bytes, options.max_entries));
  }
  if (options.upload_idle_ttl <= absl::ZeroDuration()) {
    return InvalidOption(absl::StrFormat("upload_idle_ttl must be above 0; got %s",
                                         absl::FormatDuration(options.upload_idle_ttl)));
  }
  if (!options.now) options.now = [] { return absl::Now(); };
  SPARSEFW_ASSIGN_OR_RETURN(std::string salt, RandomId());
  return std::unique_ptr<TensorStore>(
      new SpooledTensorStore(std::move(options), std::move(spool), std::move(salt)));
}

SpooledTensorStore::SpooledTensorStore(TensorStoreOptions options, std::shared_ptr<Spool> spool,
                                       std::string token_salt)
    : options_(std::move(options)),
      spool_(std::move(spool)),
      budget_(ByteBudget::Create(options_.budget_bytes)),
      token_salt_(std::move(token_salt)) {}

absl::StatusOr<std::shared_ptr<Upload>> SpooledTensorStore::FindUpload(std::string_view name) {
  MutexLock lock(mutex_);
  const auto found = uploads_.find(std::string(IdOf(name, kUploadPrefix)));
  if (found == uploads_.end()) return UploadNotFound(name);
  return found->second;
}

absl::StatusOr<int64_t> SpooledTensorStore::Write(std::string_view upload, int64_t offset,
                                                  std::span<const std::byte> data,
                                                  uint32_t crc32c) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<Upload> found, FindUpload(upload));
  return found->Append(UploadKind::kTensor, offset, data, crc32c);
}

absl::StatusOr<int64_t> SpooledTensorStore::Accumulate(std::string_view upload,
                                                       int64_t token_offset,
                                                       std::span<const std::byte> data,
                                                       uint32_t crc32c) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<Upload> found, FindUpload(upload));
  return found->Append(UploadKind::kGram, token_offset, data, crc32c);
}

absl::StatusOr<TensorInfo> SpooledTensorStore::Finish(std::string_view upload,
                                                      std::optional<uint32_t> total_crc32c) {
  if (auto found = FindUpload(upload); found.ok()) {
    absl::StatusOr<TensorInfo> finished = (*found)->Finish(total_crc32c);
    // Not found: another caller finished it just now.
    if (!absl::IsNotFound(finished.status())) return finished;
  }
  return FinishedBefore(upload, total_crc32c);
}

absl::StatusOr<TensorInfo> SpooledTensorStore::FinishedBefore(
    std::string_view upload, std::optional<uint32_t> total_crc32c) {
  std::shared_ptr<StoredTensor> tensor;
  {
    MutexLock lock(mutex_);
    tensor = tensors_.Find(IdOf(upload, kUploadPrefix));
  }
  if (tensor == nullptr || !tensor->origin().from_upload) return UploadNotFound(upload);
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

absl::StatusOr<UploadInfo> SpooledTensorStore::GetUpload(std::string_view name) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<Upload> found, FindUpload(name));
  return found->Info();
}

absl::Status SpooledTensorStore::DeleteUpload(std::string_view name) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<Upload> found, FindUpload(name));
  return found->Delete();
}

TensorInfo SpooledTensorStore::Publish(const Upload& upload, CompleteTensor tensor) {
  auto stored = std::make_shared<StoredTensor>(upload.origin(), std::move(tensor), Now(),
                                               absl::InfiniteFuture());
  TensorInfo info = stored->Info();
  MutexLock lock(mutex_);
  uploads_.erase(upload.origin().id);
  tensors_.Insert(std::move(stored));
  return info;
}

void SpooledTensorStore::Forget(const Upload& upload) {
  MutexLock lock(mutex_);
  uploads_.erase(upload.origin().id);
  requests_.Erase(upload.origin().request_id);
}

absl::StatusOr<TensorInfo> SpooledTensorStore::Put(const TensorSpec& spec,
                                                   std::span<const std::byte> bytes,
                                                   std::string_view owner, absl::Time expire_time,
                                                   ByteBudget::Reservation* room) {
  SPARSEFW_RETURN_IF_ERROR(ValidateSpec(spec));
  const int64_t size = ByteSize(spec);
  if (static_cast<int64_t>(bytes.size()) != size) {
    return Invalid("SPEC_INVALID", "a tensor of dims [%d, %d] must be %d bytes; got %d", spec.rows,
                   spec.cols, size, bytes.size());
  }
  {
    MutexLock lock(mutex_);
    SPARSEFW_RETURN_IF_ERROR(CheckRoomForOne());
  }
  ByteBudget::Reservation reservation;
  if (room != nullptr && room->bytes() >= size) {
    reservation = room->Split(size);
  } else {
    SPARSEFW_ASSIGN_OR_RETURN(reservation, Reserve(kWhatIsMade, size));
  }
  SPARSEFW_ASSIGN_OR_RETURN(std::string id, RandomId());
  SPARSEFW_ASSIGN_OR_RETURN(std::unique_ptr<SpoolFile> file, spool_->Create(id, size));
  SPARSEFW_RETURN_IF_ERROR(file->Write(0, bytes));
  Origin origin;
  origin.id = std::move(id);
  origin.owner = std::string(owner);
  auto stored = std::make_shared<StoredTensor>(
      std::move(origin),
      CompleteTensor{spec, Crc32c(bytes), std::move(file), std::move(reservation)}, Now(),
      expire_time);
  TensorInfo info = stored->Info();
  MutexLock lock(mutex_);
  tensors_.Insert(std::move(stored));
  return info;
}

absl::StatusOr<TensorInfo> SpooledTensorStore::GetTensor(std::string_view name) {
  MutexLock lock(mutex_);
  const std::shared_ptr<StoredTensor> found = tensors_.Find(IdOf(name, kTensorPrefix));
  if (found == nullptr) return TensorNotFound(name);
  return found->Info();
}

absl::StatusOr<std::shared_ptr<const TensorHandle>> SpooledTensorStore::Acquire(
    std::string_view name) {
  std::shared_ptr<StoredTensor> found;
  {
    MutexLock lock(mutex_);
    found = tensors_.Find(IdOf(name, kTensorPrefix));
    if (found == nullptr) return TensorNotFound(name);
    found->AddReference();
  }
  return StoredTensor::Hold(std::move(found));
}

absl::Status SpooledTensorStore::DeleteTensor(std::string_view name) {
  std::shared_ptr<StoredTensor> removed;  // destroyed after the lock: that removes the file
  MutexLock lock(mutex_);
  removed = tensors_.Find(IdOf(name, kTensorPrefix));
  if (removed == nullptr) return TensorNotFound(name);
  if (const int references = removed->references(); references > 0) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrFormat(
            "%s must not be in use to be deleted; %d still hold it", name, references)),
        "TENSOR_IN_USE", {{"reference_count", absl::StrFormat("%d", references)}});
  }
  tensors_.Erase(removed->origin().id);
  requests_.Erase(removed->origin().request_id);
  return absl::OkStatus();
}

absl::StatusOr<TensorStore::Page> SpooledTensorStore::ListTensors(int page_size,
                                                                  std::string_view page_token) {
  if (page_size < 1) {
    return Invalid("PAGE_SIZE_INVALID", "page_size must be at least 1; got %d", page_size);
  }
  uint64_t before = std::numeric_limits<uint64_t>::max();
  if (!page_token.empty()) {
    const auto position = DecodePageToken(page_token, token_salt_);
    if (!position) {
      return Invalid("PAGE_TOKEN_INVALID",
                     "page_token must be empty or the next_page_token of a page of this "
                     "server; got \"%s\"",
                     Printable(page_token));
    }
    before = *position;
  }
  TensorTable::Page found;  // may hold the last reference to a tensor: gone after the lock
  Page page;
  {
    MutexLock lock(mutex_);
    found = tensors_.List(static_cast<size_t>(page_size), before);
  }
  for (const auto& tensor : found.tensors) page.tensors.push_back(tensor->Info());
  if (found.next) page.next_page_token = EncodePageToken(*found.next, token_salt_);
  return page;
}

void SpooledTensorStore::CollectGarbage() {
  const absl::Time now = Now();
  std::vector<std::shared_ptr<StoredTensor>> expired;
  std::vector<std::shared_ptr<Upload>> uploads;
  {
    MutexLock lock(mutex_);
    expired = tensors_.TakeExpired(now);
    for (const auto& tensor : expired) requests_.Erase(tensor->origin().request_id);
    for (const auto& [id, upload] : uploads_) {
      if (upload->expire_time() <= now) uploads.push_back(upload);
    }
  }
  for (const auto& upload : uploads) upload->DeleteIfIdle(now);
}

TensorStoreUsage SpooledTensorStore::usage() const {
  TensorStoreUsage usage;
  usage.budget_bytes = budget_->limit();
  usage.used_bytes = budget_->used();
  MutexLock lock(mutex_);
  usage.tensors = static_cast<int64_t>(tensors_.size());
  usage.uploads = static_cast<int64_t>(uploads_.size());
  return usage;
}

}  // namespace sparsefw::server
