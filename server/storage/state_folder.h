// The folder of everything that a server keeps; one server's at a time.
#ifndef SPARSEFW_SERVER_STORAGE_STATE_FOLDER_H_
#define SPARSEFW_SERVER_STORAGE_STATE_FOLDER_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/net/descriptor.h"

namespace sparsefw::server {

// Makes the folder where it is not there, and holds it while the descriptor is open; the kernel
// releases it, however the program ends.
// Errors: FailedPrecondition  another server uses it (STATE_IN_USE)
//         PermissionDenied / Internal  it cannot be made or opened (STORE_FAILED)
absl::StatusOr<Descriptor> HoldStateFolder(const std::string& path);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_STATE_FOLDER_H_
