// An upload's life: one caller at a time, from creation to its end.
#ifndef SPARSEFW_SERVER_TENSORS_UPLOADS_UPLOAD_H_
#define SPARSEFW_SERVER_TENSORS_UPLOADS_UPLOAD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/tensors/store/stored_tensor.h"
#include "server/tensors/uploads/upload_content.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Thread-safe: calls are serialised, the disk is written while the lock of
// this upload, and of no other, is held.
//
// An upload that has ended (finished, deleted, expired, or that could not be
// prepared) answers NotFound (UPLOAD_NOT_FOUND). Its owner is told in the same
// step, under the lock, so that nobody finds it ended but still listed.
class Upload {
 public:
  // Called with the upload's lock held; may take the store's lock.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual TensorInfo Publish(const Upload& upload, CompleteTensor tensor) = 0;
    virtual void Forget(const Upload& upload) = 0;
    virtual absl::Time Now() const = 0;
  };

  // `owner` outlives every call.
  Upload(Origin origin, std::unique_ptr<UploadContent> content, absl::Duration idle_ttl,
         Owner* owner);

  const Origin& origin() const { return origin_; }
  std::string name() const { return "uploads/" + origin_.id; }
  // A hint: it moves with every write.
  absl::Time expire_time() const;

  // Whoever comes first does the work, the others get the same answer.
  absl::Status Prepare();
  absl::StatusOr<UploadInfo> Info();
  // Errors: see TensorStore::Write and Accumulate.
  absl::StatusOr<int64_t> Append(UploadKind kind, int64_t offset, std::span<const std::byte> data,
                                 uint32_t crc32c);
  absl::StatusOr<TensorInfo> Finish(std::optional<uint32_t> total_crc32c);
  absl::Status Delete();
  // Ends it when its time has come; never waits long for a caller that writes.
  void DeleteIfIdle(absl::Time now);

 private:
  enum class State { kNew, kOpen, kEnded };

  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Touch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WithProgress(absl::Status status) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Origin origin_;
  const absl::Duration idle_ttl_;
  Owner* const owner_;
  const absl::Time create_time_;
  std::atomic<int64_t> expire_time_ns_;  // since the epoch

  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kNew;
  absl::Status prepared_ ABSL_GUARDED_BY(mutex_);                   // the answer of Prepare
  std::unique_ptr<UploadContent> content_ ABSL_GUARDED_BY(mutex_);  // null once ended
};

// NotFound (UPLOAD_NOT_FOUND) with the name as the client gave it.
absl::Status UploadNotFound(std::string_view name);
// For messages: a client's text, escaped and cut.
std::string Printable(std::string_view text);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_UPLOADS_UPLOAD_H_
