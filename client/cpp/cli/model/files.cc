#include "client/cpp/cli/model/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

namespace fs = std::filesystem;

int WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

void SyncFolder(const fs::path& folder) {
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);  // some file systems cannot; the file itself is on the disk
  close(fd);
}

}  // namespace

absl::Status PathError(const fs::path& path, std::string_view action, int error) {
  return FileError(absl::StrFormat("%s: cannot be %s: %s", path.string(), action,
                                   std::system_category().message(error)));
}

absl::StatusOr<std::vector<std::byte>> ReadWholeFile(const fs::path& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) return PathError(path, "read", errno);
  const auto bytes = std::as_bytes(std::span(text));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

absl::StatusOr<Json> ReadJsonFile(const fs::path& path) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ReadWholeFile(path));
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  Json json = Json::parse(text, text + bytes.size(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return FileError(absl::StrFormat("%s: must hold one JSON object", path.string()));
  }
  return json;
}

absl::Status WriteWholeFile(const fs::path& path, std::span<const std::byte> bytes) {
  const fs::path partial = path.string() + ".partial";
  const int fd = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return PathError(path, "written", errno);
  int error = WriteAll(fd, bytes);
  if (error == 0 && fsync(fd) != 0) error = errno;
  close(fd);
  if (error == 0 && rename(partial.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(partial.c_str());
    return PathError(path, "written", error);
  }
  SyncFolder(path.parent_path());
  return absl::OkStatus();
}

absl::Status WriteJsonFile(const fs::path& path, const Json& json) {
  const std::string text = json.dump(1) + "\n";
  return WriteWholeFile(path, std::as_bytes(std::span(text)));
}

bool IsWithin(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  const fs::path inner = fs::weakly_canonical(path, error);
  const fs::path outer = fs::weakly_canonical(folder, error);
  const fs::path relative = inner.lexically_relative(outer);
  return !relative.empty() && *relative.begin() != "..";
}

}  // namespace sparsefw::cli
