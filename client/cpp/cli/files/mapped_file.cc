#include "client/cpp/cli/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"

namespace sparsefw::cli {

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const auto failed = [&path](const char* what) {
    return FileError(
        absl::StrFormat("%s: cannot be %s: %s", path, what, std::system_category().message(errno)));
  };
  // Not blocking: opening a named pipe would wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return failed("opened");
  const std::unique_ptr<const int, void (*)(const int*)> closer(&fd,
                                                                [](const int* it) { close(*it); });
  struct stat info = {};
  if (fstat(fd, &info) != 0) return failed("examined");
  if (!S_ISREG(info.st_mode)) {
    return FileError(absl::StrFormat("%s: must be a regular file; it is none", path));
  }
  std::span<const std::byte> bytes;
  if (info.st_size > 0) {
    const auto size = static_cast<size_t>(info.st_size);
    void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return failed("mapped into memory");
    bytes = std::span(static_cast<const std::byte*>(data), size);
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(bytes));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace sparsefw::cli
