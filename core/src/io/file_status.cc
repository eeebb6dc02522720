#include "core/src/io/file_status.h"

#include <cerrno>
#include <string>
#include <system_error>

#include "absl/strings/str_format.h"
#include "sparsefw/reason.h"

namespace sparsefw::io {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status FileError(std::string_view path, std::string_view action, int error) {
  // Not strerror: it is not thread-safe.
  return absl::Status(CodeOf(error), absl::StrFormat("%s: cannot be %s: %s", path, action,
                                                     std::system_category().message(error)));
}

absl::Status InvalidFile(std::string_view path, std::string_view rule) {
  return Invalid("FILE_INVALID", "%s: %s", path, rule);
}

}  // namespace sparsefw::io
