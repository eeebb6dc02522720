// A whole file in memory, by mmap.
#ifndef SPARSEFW_CLIENT_CLI_FILES_MAPPED_FILE_H_
#define SPARSEFW_CLIENT_CLI_FILES_MAPPED_FILE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace sparsefw::cli {

class MappedFile {
 public:
  // Errors (exit code 2): cannot be opened, examined or mapped; no regular file. The message begins
  // with the path.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  const std::span<const std::byte> bytes_;  // empty: nothing is mapped
};

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_FILES_MAPPED_FILE_H_
