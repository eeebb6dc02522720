#include "server/storage/state_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

absl::Status Failed(const std::string& path, const char* action, int error) {
  const bool denied = error == EACCES || error == EPERM || error == EROFS;
  return Refuse(denied ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kInternal,
                "STORE_FAILED", "%s: cannot be %s: %s", path, action,
                std::system_category().message(error));
}

}  // namespace

absl::StatusOr<Descriptor> HoldStateFolder(const std::string& path) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return Failed(path, "made", error.value());
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Failed(path, "made", errno);
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.ok()) return Failed(path, "opened as a folder", errno);
  if (flock(folder.get(), LOCK_EX | LOCK_NB) == 0) return folder;
  if (errno != EWOULDBLOCK) return Failed(path, "locked", errno);
  return Refuse(absl::StatusCode::kFailedPrecondition, "STATE_IN_USE",
                "%s: another server is using this state folder", path);
}

}  // namespace sparsefw::server
