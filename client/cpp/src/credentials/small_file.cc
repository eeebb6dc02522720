#include "client/cpp/src/credentials/small_file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "sparsefw/reason.h"

namespace sparsefw::client::internal {

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 4096> part;
  // Not istreambuf_iterator: it throws where reading fails, as that of a folder does.
  while (file.read(part.data(), part.size()) || file.gcount() > 0) {
    text.append(part.data(), static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    return Invalid("CLIENT_ARGUMENT", "%s: cannot be read: %s", path, std::strerror(errno));
  }
  return text;
}

}  // namespace sparsefw::client::internal
