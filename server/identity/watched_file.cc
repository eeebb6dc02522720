#include "server/identity/watched_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20;

absl::StatusOr<std::string> ReadAll(int fd, const std::string& path) {
  std::string text;
  std::string buffer(size_t{64} << 10, '\0');
  while (true) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, "cannot read " + path);
    if (count == 0) return text;
    text.append(buffer, 0, static_cast<size_t>(count));
    if (text.size() > kMaxBytes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s must have at most %d bytes", path, kMaxBytes));
    }
  }
}

}  // namespace

WatchedFile::Stamp WatchedFile::Look() const {
  struct stat facts = {};
  if (stat(path_.c_str(), &facts) != 0) return {};
  return {static_cast<int64_t>(facts.st_dev),
          static_cast<int64_t>(facts.st_ino),
          facts.st_size,
          facts.st_mtim.tv_sec,
          facts.st_mtim.tv_nsec,
          facts.st_ctim.tv_sec,
          facts.st_ctim.tv_nsec};
}

absl::StatusOr<std::string> WatchedFile::Read() {
  // Looks before it reads, so that a change in between is seen as one.
  read_ = seen_ = Look();
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  absl::StatusOr<std::string> text =
      fd < 0 ? absl::ErrnoToStatus(errno, "cannot open " + path_) : ReadAll(fd, path_);
  if (fd >= 0) close(fd);
  retry_in_ = text.ok() || absl::IsNotFound(text.status()) ? 0 : kRetryLooks;
  if (text.ok() && Look() != read_) {
    retry_in_ = kRetryLooks;  // it may have been the look that failed
    return Invalid("CONFIGURATION_INVALID", "%s must not change while it is read", path_);
  }
  if (text.ok()) return text;
  return Invalid("CONFIGURATION_INVALID", "%s", std::string(text.status().message()));
}

void WatchedFile::AwaitSettled() const {
  constexpr int kLooks = 10;
  constexpr absl::Duration kPause = absl::Milliseconds(100);
  Stamp before = Look();
  for (int look = 0; look < kLooks; ++look) {
    absl::SleepFor(kPause);
    const Stamp now = Look();
    if (now == before) return;
    before = now;
  }
}

bool WatchedFile::SettledChange() {
  const Stamp now = Look();
  if (std::exchange(seen_, now) != now) return false;
  return now != read_ || (retry_in_ > 0 && --retry_in_ == 0);
}

}  // namespace sparsefw::server
