// Where tensors lie on disk: one file each in a folder that one server owns.
#ifndef SPARSEFW_SERVER_TENSORS_SPOOL_SPOOL_H_
#define SPARSEFW_SERVER_TENSORS_SPOOL_SPOOL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sparsefw::server {

// Bytes of the ids of tensors and their files: random, so that they cannot be guessed.
inline constexpr size_t kIdBytes = 16;
// An id is these bytes in lower-case hexadecimal.
inline constexpr size_t kIdLength = 2 * kIdBytes;
inline bool IsId(std::string_view text) {
  return text.size() == kIdLength && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// Read-only memory of a file, unmapped when destroyed. Move only.
class MappedBytes {
 public:
  MappedBytes() = default;
  // Takes over what mmap returned.
  explicit MappedBytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  MappedBytes(MappedBytes&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedBytes& operator=(MappedBytes&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedBytes();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// A file of fixed size. It outlives this object, and the process, until Remove.
// A new one is a part: a start may remove it where no record names it.
// Holds no descriptor open: thousands of tensors must not use them up.
// Distinct ranges may be written from distinct threads.
class SpoolFile {
 public:
  virtual ~SpoolFile() = default;

  // Takes the file out of the folder, once; mappings stay valid. A file that cannot be removed now
  // is found at the next start, since nothing names it.
  virtual void Remove() = 0;
  // A record names the file, which is no part any more. Where that cannot be written, the next
  // start does it. Not while the file is used otherwise.
  virtual void Keep() = 0;
  // Writes all of `bytes`, or fails; then any part of the range may have been
  // overwritten. The range lies within the file.
  // Errors: ResourceExhausted (SPOOL_FULL); Unavailable (SPOOL_FAILED) no
  //         descriptors left; Internal (SPOOL_FAILED)
  virtual absl::Status Write(int64_t offset, std::span<const std::byte> bytes) = 0;
  // Reads [offset, offset + bytes.size()), which lies within the file. Unlike a
  // mapping it answers a broken disk with an error. Errors: as Write.
  virtual absl::Status Read(int64_t offset, std::span<std::byte> bytes) const = 0;
  // Returns once all that was written is on the disk, and the folder's entry too.
  // Errors: as Write; what was written since the last Sync may then be lost
  virtual absl::Status Sync() = 0;
  // The whole file. Errors: as Write.
  virtual absl::StatusOr<MappedBytes> Map() const = 0;
};

// Removes a new file unless it is taken: for what can fail between the making of
// a file and the moment in which something names it.
class NewSpoolFile {
 public:
  explicit NewSpoolFile(std::unique_ptr<SpoolFile> file) : file_(std::move(file)) {}
  NewSpoolFile(NewSpoolFile&&) = default;
  NewSpoolFile& operator=(NewSpoolFile&&) = delete;
  ~NewSpoolFile() {
    if (file_ != nullptr) file_->Remove();
  }
  SpoolFile* operator->() const { return file_.get(); }
  SpoolFile& operator*() const { return *file_; }
  std::unique_ptr<SpoolFile> Take() { return std::move(file_); }

 private:
  std::unique_ptr<SpoolFile> file_;
};

struct SpoolEntry {
  enum class Kind {
    kKept,
    kPart,     // no record has named it, or its record was about to be deleted
    kDeleted,  // no file of a tensor: it says that the record is to be deleted
  };
  std::string id;
  int64_t bytes = 0;
  Kind kind = Kind::kKept;
  friend bool operator==(const SpoolEntry&, const SpoolEntry&) = default;
};

// Thread-safe. Files keep what they need of it alive.
class Spool {
 public:
  virtual ~Spool() = default;
  // Room on the disk is taken now, not when bytes come, for 64 KiB or more where the file system
  // can do that. `size` is at least 1; `id` is new. Errors: as SpoolFile::Write.
  virtual absl::StatusOr<std::unique_ptr<SpoolFile>> Create(std::string_view id, int64_t size) = 0;
  // A file that is there, of an earlier run, a part or not. Errors: NotFound (SPOOL_FAILED);
  // DataLoss (TENSOR_CORRUPT) its size is another one; as SpoolFile::Write
  virtual absl::StatusOr<std::unique_ptr<SpoolFile>> Adopt(std::string_view id, int64_t size) = 0;
  // All files.
  virtual absl::StatusOr<std::vector<SpoolEntry>> List() const = 0;
  // The store that the folder belongs to; empty: nobody has said so yet. Errors: as
  // SpoolFile::Write
  virtual absl::StatusOr<std::string> Owner() const = 0;
  virtual absl::Status SetOwner(std::string_view store) = 0;
  // The file is a part again: its record is about to be deleted. Does nothing where it cannot. A
  // power loss may undo it until SyncNames.
  virtual void Release(std::string_view id) = 0;
  virtual void SyncNames() = 0;
  // Removes a file that is in nobody's hands.
  virtual absl::Status Remove(std::string_view id) = 0;
  // The tensor is deleted but for its record, which cannot be deleted now. Where there is no room
  // for a mark, its file becomes the mark.
  virtual void MarkDeleted(std::string_view id) = 0;
  virtual void UnmarkDeleted(std::string_view id) = 0;
};

// Makes the folder if it is not there, locks it until the spool and all its
// files are gone. Only files with names of its own making are listed and removed:
// somebody may have named the wrong folder.
// Errors: FailedPrecondition (SPOOL_IN_USE)  another server holds the lock;
//         PermissionDenied / Internal (SPOOL_FAILED)  it cannot be made or written
absl::StatusOr<std::shared_ptr<Spool>> OpenSpoolFolder(const std::string& folder);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_SPOOL_SPOOL_H_
