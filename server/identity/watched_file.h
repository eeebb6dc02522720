// A small file that is read again when it changes.
#ifndef SPARSEFW_SERVER_IDENTITY_WATCHED_FILE_H_
#define SPARSEFW_SERVER_IDENTITY_WATCHED_FILE_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace sparsefw::server {

// Not thread-safe; touches the disk.
class WatchedFile {
 public:
  explicit WatchedFile(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // At most 16 MiB. Errors: InvalidArgument (CONFIGURATION_INVALID): what the system says, a larger
  // file, and one that changes meanwhile.
  absl::StatusOr<std::string> Read();

  // Waits until two looks a moment apart agree, for one second at most.
  void AwaitSettled() const;

  // Whether it differs from what the last Read saw, and no longer changes: it
  // looks as at the last call. So a file that is being written is not taken half-way.
  // True, too, at the tenth call after a Read that the system made fail.
  bool SettledChange();

 private:
  // Device, inode, size, times of the last writing and of the last change; zeros:
  // there is no such file.
  using Stamp = std::array<int64_t, 7>;
  Stamp Look() const;

  std::string path_;
  Stamp read_ = {};
  Stamp seen_ = {};
  static constexpr int kRetryLooks = 10;  // each failure is a line of the log
  int retry_in_ = 0;                      // calls of SettledChange; 0: it did not fail
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_IDENTITY_WATCHED_FILE_H_
