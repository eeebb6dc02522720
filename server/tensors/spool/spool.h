// Where tensors lie on disk: one file each in a folder that one server owns.
#ifndef SPARSEFW_SERVER_TENSORS_SPOOL_SPOOL_H_
#define SPARSEFW_SERVER_TENSORS_SPOOL_SPOOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sparsefw::server {

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

// A file of fixed size, removed when this is destroyed (a mapping stays valid).
// Holds no descriptor open: thousands of tensors must not use them up.
// Distinct ranges may be written from distinct threads.
class SpoolFile {
 public:
  virtual ~SpoolFile() = default;

  // Writes all of `bytes`, or fails; then any part of the range may have been
  // overwritten. The range lies within the file.
  // Errors: ResourceExhausted (SPOOL_FULL); Unavailable (SPOOL_FAILED) no
  //         descriptors left; Internal (SPOOL_FAILED)
  virtual absl::Status Write(int64_t offset, std::span<const std::byte> bytes) = 0;
  // The whole file. Errors: as Write.
  virtual absl::StatusOr<MappedBytes> Map() const = 0;
};

// Thread-safe. Files keep what they need of it alive.
class Spool {
 public:
  virtual ~Spool() = default;
  // Room on the disk is taken now, not when bytes come, where the file system
  // can do that. `size` is at least 1; `id` is new. Errors: as SpoolFile::Write.
  virtual absl::StatusOr<std::unique_ptr<SpoolFile>> Create(std::string_view id, int64_t size) = 0;
};

// Makes the folder if it is not there, locks it until the spool and all its
// files are gone, and removes the files of an earlier run. Nothing else in the
// folder is touched: somebody may have named the wrong one.
// Errors: FailedPrecondition (SPOOL_IN_USE)  another server holds the lock;
//         PermissionDenied / Internal (SPOOL_FAILED)  it cannot be made or written
absl::StatusOr<std::shared_ptr<Spool>> OpenSpoolFolder(const std::string& folder);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_SPOOL_SPOOL_H_
