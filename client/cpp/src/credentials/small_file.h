// Files of credentials.
#ifndef SPARSEFW_CLIENT_SRC_CREDENTIALS_SMALL_FILE_H_
#define SPARSEFW_CLIENT_SRC_CREDENTIALS_SMALL_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace sparsefw::client::internal {

// All of a file. Errors: InvalidArgument (CLIENT_ARGUMENT), with its path: it cannot be read, or is
// a folder.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

}  // namespace sparsefw::client::internal

#endif  // SPARSEFW_CLIENT_SRC_CREDENTIALS_SMALL_FILE_H_
