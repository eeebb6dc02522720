// An upload's life: one caller at a time, from creation to its end.
#ifndef SPARSEFW_SERVER_TENSORS_UPLOADS_UPLOAD_H_
#define SPARSEFW_SERVER_TENSORS_UPLOADS_UPLOAD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/tensors/catalog/tensor_catalog.h"
#include "server/tensors/store/stored_tensor.h"
#include "server/tensors/uploads/upload_content.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

class TensorStore;

// Thread-safe: calls are serialised, the disk is written while the lock of
// this upload, and of no other, is held.
//
// An upload that has ended (finished, deleted, expired, or that could not be
// prepared) answers NotFound (UPLOAD_NOT_FOUND). Its store is told in the same
// step, under the lock, so that nobody finds it ended but still listed.
//
// A position that anybody is told of is recorded first: see TensorStore.
class Upload {
 public:
  // `recorded`: it goes on after a restart. `store` outlives every call.
  // `number`: newer ones have higher ones, in this process.
  Upload(Origin origin, std::unique_ptr<UploadContent> content, uint64_t number,
         absl::Time create_time, absl::Duration idle_ttl, bool recorded, TensorStore* store);

  const Origin& origin() const { return origin_; }
  bool recorded() const { return recorded_; }
  std::string name() const { return "uploads/" + origin_.id; }
  uint64_t number() const { return number_; }
  // Steady time. A hint: it moves with every write.
  absl::Time expire_time() const;
  void Touch();

  // The first caller does the work; the others get the same answer.
  absl::Status Prepare();
  // Takes the place of Prepare for an upload of an earlier run. Leaves its files when that fails.
  absl::Status Recover(const UploadProgress& progress);
  // Records what was appended, as far as it can.
  absl::StatusOr<UploadInfo> Info();
  // Records all that was appended, or fails.
  absl::StatusOr<UploadInfo> Commit();
  // Errors: see TensorStore::Write and Accumulate.
  absl::StatusOr<int64_t> Append(UploadKind kind, int64_t offset, std::span<const std::byte> data,
                                 uint32_t crc32c);
  absl::StatusOr<TensorInfo> Finish(std::optional<uint32_t> total_crc32c);
  absl::Status Delete();
  // The end of the process: records what was appended; without a record, removes
  // the files.
  void Close();
  // Ends it when its time has come; never waits long for a caller that writes.
  void DeleteIfIdle(absl::Time now);

 private:
  enum class State { kNew, kOpen, kEnded };

  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Save() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  UploadInfo Describe() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WithProgress(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Origin origin_;
  const uint64_t number_;
  const absl::Duration idle_ttl_;
  const bool recorded_;
  TensorStore* const store_;
  const absl::Time create_time_;
  std::atomic<int64_t> expire_time_ns_;  // since the epoch

  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kNew;
  absl::Status prepared_ ABSL_GUARDED_BY(mutex_);                   // the answer of Prepare
  std::unique_ptr<UploadContent> content_ ABSL_GUARDED_BY(mutex_);  // null once ended
};

// NotFound (UPLOAD_NOT_FOUND) with the name as the client gave it.
absl::Status UploadNotFound(std::string_view name);
// InvalidArgument (WRONG_UPLOAD_KIND): `kind` is what the upload is.
absl::Status WrongUploadKind(std::string_view name, UploadKind kind);
// DataLoss (CHECKSUM_MISMATCH)
absl::Status CheckChunk(int64_t offset, std::span<const std::byte> data, uint32_t crc32c);
// For messages: a client's text, escaped and cut.
std::string Printable(std::string_view text);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_UPLOADS_UPLOAD_H_
