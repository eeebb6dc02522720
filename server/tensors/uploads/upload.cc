#include "server/tensors/uploads/upload.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "server/failpoint/failpoint.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

std::string_view CallFor(UploadKind kind) {
  return kind == UploadKind::kTensor ? "WriteTensor" : "AccumulateGram";
}

}  // namespace

absl::Status WrongUploadKind(std::string_view name, UploadKind kind) {
  return Invalid("WRONG_UPLOAD_KIND", "%s must be written to by %s; got a chunk of %s", name,
                 CallFor(kind),
                 CallFor(kind == UploadKind::kTensor ? UploadKind::kGram : UploadKind::kTensor));
}

absl::Status CheckChunk(int64_t offset, std::span<const std::byte> data, uint32_t crc32c) {
  const uint32_t actual = Crc32c(data);
  if (actual == crc32c) return absl::OkStatus();
  return Refuse(
      absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH",
      "crc32c must be the checksum of the chunk's %d bytes at offset %d, 0x%08x; got 0x%08x",
      data.size(), offset, actual, crc32c);
}

std::string Printable(std::string_view text) {
  constexpr size_t kMostBytes = 80;
  const std::string cut(text.substr(0, kMostBytes));
  return absl::CEscape(cut) + (text.size() > kMostBytes ? "..." : "");
}

absl::Status UploadNotFound(std::string_view name) {
  return Refuse(absl::StatusCode::kNotFound, "UPLOAD_NOT_FOUND",
                "an upload must exist and be unfinished to be used; got \"%s\"", Printable(name));
}

absl::StatusOr<AppendRange> PlanAppend(int64_t offset, int64_t count, int64_t committed,
                                       int64_t limit, std::string_view unit) {
  if (offset < 0) {
    return Invalid("OFFSET_INVALID", "the offset must be at least 0 %s; got %d", unit, offset);
  }
  // The sum offset + count may be beyond int64.
  if (offset > limit || count > limit - offset) {
    return Refuse(absl::StatusCode::kOutOfRange, "OFFSET_OUT_OF_RANGE",
                  "a chunk must end within %d %s; got %d of them at offset %d", limit, unit, count,
                  offset);
  }
  if (offset > committed) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "OFFSET_GAP",
                  "a chunk must begin at or before the %d %s committed so far; got offset "
                  "%d",
                  committed, unit, offset);
  }
  const int64_t skip = std::min(committed - offset, count);
  return AppendRange{skip, count - skip};
}

Upload::Upload(Origin origin, std::unique_ptr<UploadContent> content, uint64_t number,
               absl::Time create_time, absl::Duration idle_ttl, bool recorded, TensorStore* store)
    : origin_(std::move(origin)),
      number_(number),
      idle_ttl_(idle_ttl),
      recorded_(recorded),
      store_(store),
      create_time_(create_time),
      expire_time_ns_(absl::ToUnixNanos(store->SteadyNow() + idle_ttl)),
      content_(std::move(content)) {}

absl::Time Upload::expire_time() const {
  return absl::FromUnixNanos(expire_time_ns_.load(std::memory_order_relaxed));
}

void Upload::Touch() {
  expire_time_ns_.store(absl::ToUnixNanos(store_->SteadyNow() + idle_ttl_),
                        std::memory_order_relaxed);
}

void Upload::End() {
  store_->Forget(*this);
  state_ = State::kEnded;
  content_->Remove();
  content_.reset();
}

absl::Status Upload::CheckOpen() const {
  return state_ == State::kOpen ? absl::OkStatus() : UploadNotFound(name());
}

// First the bytes, then the record that names them.
absl::Status Upload::Save() {
  if (content_->unsaved_bytes() == 0) return absl::OkStatus();
  if (!recorded_) {
    content_->Saved(content_->appended());
    return absl::OkStatus();
  }
  SPARSEFW_ASSIGN_OR_RETURN(const UploadProgress progress, content_->Save());
  Failpoint("upload.synced");
  if (absl::Status status = store_->RecordProgress(*this, progress); !status.ok()) {
    content_->NotSaved(progress);
    return status;
  }
  Failpoint("upload.recorded");
  content_->Saved(progress);
  return absl::OkStatus();
}

// A client is not told of what cannot be recorded, and sends it again.
absl::Status Upload::WithProgress(absl::Status status) {
  Save().IgnoreError();
  ReasonMetadata metadata = ReasonMetadataOf(status);
  metadata.merge(content_->Progress());
  const std::string reason = ReasonOf(status);
  return WithReasonText(std::move(status), reason, metadata);
}

UploadInfo Upload::Describe() const {
  UploadInfo info;
  content_->Describe(info);
  info.name = name();
  info.create_time = create_time_;
  info.expire_time = expire_time();
  return info;
}

absl::Status Upload::Prepare() {
  MutexLock lock(mutex_);
  if (state_ != State::kNew) return prepared_;
  prepared_ = content_->Prepare();
  if (prepared_.ok()) Failpoint("upload.file_made");
  if (prepared_.ok() && recorded_) prepared_ = store_->Record(*this, Describe());
  if (prepared_.ok()) Failpoint("upload.created");
  if (prepared_.ok()) {
    if (recorded_) content_->Keep();
    state_ = State::kOpen;
  } else {
    End();
  }
  return prepared_;
}

absl::Status Upload::Recover(const UploadProgress& progress) {
  MutexLock lock(mutex_);
  SPARSEFW_RETURN_IF_ERROR(content_->Recover(progress));
  content_->Keep();
  state_ = State::kOpen;
  return absl::OkStatus();
}

absl::StatusOr<UploadInfo> Upload::Info() {
  MutexLock lock(mutex_);
  SPARSEFW_RETURN_IF_ERROR(CheckOpen());
  Save().IgnoreError();
  return Describe();
}

absl::StatusOr<UploadInfo> Upload::Commit() {
  MutexLock lock(mutex_);
  SPARSEFW_RETURN_IF_ERROR(CheckOpen());
  if (absl::Status status = Save(); !status.ok()) return WithProgress(std::move(status));
  return Describe();
}

void Upload::Close() {
  MutexLock lock(mutex_);
  if (state_ != State::kOpen) return;
  if (recorded_) {
    Save().IgnoreError();
  } else {
    content_->Remove();
  }
}

absl::StatusOr<int64_t> Upload::Append(UploadKind kind, int64_t offset,
                                       std::span<const std::byte> data, uint32_t crc32c) {
  // Checked before the lock is taken, so that chunks are checked in parallel.
  absl::Status checked = CheckChunk(offset, data, crc32c);
  MutexLock lock(mutex_);
  SPARSEFW_RETURN_IF_ERROR(CheckOpen());
  if (content_->kind() != kind) return WithProgress(WrongUploadKind(name(), content_->kind()));
  if (!checked.ok()) return WithProgress(std::move(checked));
  absl::StatusOr<int64_t> appended = content_->Append(offset, data);
  if (!appended.ok()) return WithProgress(std::move(appended).status());
  Touch();
  if (recorded_ && content_->unsaved_bytes() >= content_->save_interval()) {
    if (absl::Status status = Save(); !status.ok()) return WithProgress(std::move(status));
  }
  return appended;
}

absl::StatusOr<TensorInfo> Upload::Finish(std::optional<uint32_t> total_crc32c) {
  MutexLock lock(mutex_);
  SPARSEFW_RETURN_IF_ERROR(CheckOpen());
  const bool wrong = total_crc32c.has_value() && content_->IsWrong(*total_crc32c);
  absl::StatusOr<FinishedContent> finished = content_->Finish(total_crc32c);
  if (wrong) {
    if (recorded_) SPARSEFW_RETURN_IF_ERROR(store_->RecordProgress(*this, UploadProgress()));
    content_->Restart();
  }
  if (!finished.ok()) return WithProgress(std::move(finished).status());
  Failpoint("upload.finished");
  absl::StatusOr<TensorInfo> info = store_->Publish(*this, *content_, *finished);
  if (!info.ok()) return WithProgress(std::move(info).status());
  Failpoint("upload.published");
  state_ = State::kEnded;
  content_.reset();
  return info;
}

absl::Status Upload::Delete() {
  MutexLock lock(mutex_);
  SPARSEFW_RETURN_IF_ERROR(CheckOpen());
  End();
  return absl::OkStatus();
}

void Upload::DeleteIfIdle(absl::Time now) {
  if (expire_time() > now) return;  // without the lock, which a writer may hold for long
  MutexLock lock(mutex_);
  // Also one whose creation was cut short: memory ran out.
  if (state_ != State::kEnded && expire_time() <= now) End();
}

}  // namespace sparsefw::server
