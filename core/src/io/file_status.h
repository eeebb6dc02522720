// Statuses of errors of the operating system, for users of files.
#ifndef SPARSEFW_CORE_SRC_IO_FILE_STATUS_H_
#define SPARSEFW_CORE_SRC_IO_FILE_STATUS_H_

#include <string_view>

#include "absl/status/status.h"

namespace sparsefw::io {

// "<path>: cannot be <action>: <the error in words>", for example with the
// action "opened". `error` is an errno.
absl::Status FileError(std::string_view path, std::string_view action, int error);

// InvalidArgument (FILE_INVALID): "<path>: <rule>".
absl::Status InvalidFile(std::string_view path, std::string_view rule);

}  // namespace sparsefw::io

#endif  // SPARSEFW_CORE_SRC_IO_FILE_STATUS_H_
