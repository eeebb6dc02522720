// Received content of an upload: bytes of a tensor, or a sum over tokens.
#ifndef SPARSEFW_SERVER_TENSORS_UPLOADS_UPLOAD_CONTENT_H_
#define SPARSEFW_SERVER_TENSORS_UPLOADS_UPLOAD_CONTENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/tensors/spool/spool.h"
#include "server/tensors/store/budget.h"
#include "server/tensors/store/stored_tensor.h"
#include "server/tensors/tensor_info.h"
#include "server/tensors/uploads/accumulators.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {

// The reservations of an upload, in bytes. `resumable`: its progress is kept on the disk.
struct UploadRoom {
  int64_t host = 0;
  int64_t disk = 0;
};
UploadRoom RoomOf(const UploadSpec& spec, bool resumable);

// The place and the room that every content makes its tensor in.
struct ContentRoom {
  std::string id;
  std::shared_ptr<Spool> spool;
  Budget::Reservation host;
  Budget::Reservation disk;
  Budget::Reservation place;
  bool durable = false;       // the tensor's file is to survive: Finish syncs it
  int64_t save_interval = 0;  // see TensorStoreOptions::commit_interval_bytes
};

// The result of a complete content; its file and room are still its own.
struct FinishedContent {
  TensorSpec spec;
  uint32_t crc32c = 0;
};

// Not thread-safe: Upload serialises the calls. A call that fails leaves the
// content as it was, at its last good byte or token.
//
// Two positions: what was appended, and what is saved. The second one is what a
// client may be told of and what a restart goes on from; Upload records it
// between Save and Saved.
class UploadContent {
 public:
  explicit UploadContent(ContentRoom room) : room_(std::move(room)) {}
  virtual ~UploadContent() = default;

  virtual UploadKind kind() const = 0;
  // Fills in spec, gram and the committed fields, as they are saved.
  virtual void Describe(UploadInfo& info) const = 0;
  // Metadata of every error, from which the client resumes; as it is saved.
  ReasonMetadata Progress() const {
    return {{kind() == UploadKind::kGram ? "committed_tokens" : "committed_size",
             std::to_string(saved_.committed)}};
  }

  // Takes room on the disk and in memory. Called once, first; or Recover.
  virtual absl::Status Prepare() = 0;
  // Goes on with the files of an earlier run. Errors: of the spool, when they are
  // not there or not as they should be
  virtual absl::Status Recover(const UploadProgress& progress) = 0;
  // `offset` counts bytes or tokens; what lies below the appended ones is
  // skipped. Returns how many are appended. Errors: see TensorStore.
  virtual absl::StatusOr<int64_t> Append(int64_t offset, std::span<const std::byte> data) = 0;

  // The progress in memory, which names no state on the disk. Recorded where nothing has to
  // survive.
  virtual UploadProgress appended() const = 0;
  // Bytes of content that were appended and are not saved.
  virtual int64_t unsaved_bytes() const = 0;
  // How many of these are worth a Save in the middle of a stream.
  virtual int64_t save_interval() const { return room_.save_interval; }
  // Brings all that was appended to the disk.
  virtual absl::StatusOr<UploadProgress> Save() = 0;
  // `progress` of the last Save is recorded, or could not be.
  virtual void Saved(const UploadProgress& progress) { saved_ = progress; }
  virtual void NotSaved(const UploadProgress& /*progress*/) {}

  // True: the bytes do not have the checksum that the client gives. It may send
  // them again from 0: whoever calls it records that, then calls Restart. A sum has no bytes
  // that it could send again.
  virtual bool IsWrong(uint32_t /*total_crc32c*/) const { return false; }
  virtual void Restart() {}
  // Checks that all is there and brings the tensor to the disk. May be repeated.
  virtual absl::StatusOr<FinishedContent> Finish(std::optional<uint32_t> total_crc32c) = 0;
  // Called at most once, after Finish has succeeded, as the last call.
  virtual CompleteTensor Take(const FinishedContent& finished) = 0;
  // A record names the upload: its file is no part any more.
  void Keep() { file_->Keep(); }
  // Removes the files.
  virtual void Remove() {
    if (file_ != nullptr) file_->Remove();
  }

 protected:
  // `unchecked`: some bytes are of an earlier run.
  CompleteTensor Complete(const FinishedContent& finished, bool unchecked) {
    room_.host.Join(std::move(room_.disk));
    return {finished.spec, finished.crc32c, std::move(file_),
            TensorRoom(std::move(room_.host), std::move(room_.place)), unchecked};
  }

  ContentRoom room_;
  std::unique_ptr<SpoolFile> file_;  // of the tensor
  UploadProgress saved_;
};

std::unique_ptr<UploadContent> MakeTensorContent(const TensorSpec& spec, ContentRoom room);
std::unique_ptr<UploadContent> MakeGramContent(const GramSpec& spec, ContentRoom room,
                                               std::shared_ptr<Accumulators> accumulators);

// DataLoss (BYTES_DIFFER): the byte at `offset` is another one than before.
absl::Status BytesDiffer(int64_t offset);
// Whole tokens of an accumulation. Errors: InvalidArgument (PARTIAL_TOKEN)
absl::StatusOr<int64_t> TokensIn(const GramSpec& spec, size_t bytes);

// The arithmetic of a resumable stream of units (bytes or tokens).
struct AppendRange {
  int64_t skip = 0;   // units at the front that are committed already
  int64_t count = 0;  // units after them that are new
};
// `committed` and `limit` with 0 <= committed <= limit; `count` at least 0.
// Errors: InvalidArgument     offset < 0 (OFFSET_INVALID)
//         OutOfRange          offset + count beyond limit (OFFSET_OUT_OF_RANGE)
//         FailedPrecondition  offset beyond committed (OFFSET_GAP)
absl::StatusOr<AppendRange> PlanAppend(int64_t offset, int64_t count, int64_t committed,
                                       int64_t limit, std::string_view unit);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_UPLOADS_UPLOAD_CONTENT_H_
