// The folder of everything that a server keeps; one server's at a time.
#ifndef SPARSEFW_SERVER_STORAGE_STATE_FOLDER_H_
#define SPARSEFW_SERVER_STORAGE_STATE_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace sparsefw::server {

// Holds the folder while it lives; the kernel releases it, however the program ends.
class StateFolder {
 public:
  // Makes the folder where it is not there.
  // Errors: FailedPrecondition  another server uses it (STATE_IN_USE)
  //         PermissionDenied / Internal  it cannot be made or opened (STORE_FAILED)
  static absl::StatusOr<std::unique_ptr<StateFolder>> Open(const std::string& path);
  ~StateFolder();
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;

 private:
  explicit StateFolder(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_STATE_FOLDER_H_
