// The files behind an Authenticator, and their reload.
#ifndef SPARSEFW_SERVER_IDENTITY_IDENTITY_FILES_H_
#define SPARSEFW_SERVER_IDENTITY_IDENTITY_FILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/identity/authenticator.h"
#include "server/identity/watched_file.h"

namespace sparsefw::server {

// A file that was read again. A file without any entry is an error. Where the status is an error,
// what was read before stays in force.
struct Reload {
  std::string file;
  absl::Status status;
  int64_t entries = 0;  // tokens, or tenants
};

// Not thread-safe; touches the disk. The authenticator outlives it.
class IdentityFiles {
 public:
  // An empty path: there is no such file.
  // Errors: InvalidArgument (CONFIGURATION_INVALID): a file cannot be read, or as
  //         TokenTable and TenantTable say
  static absl::StatusOr<std::unique_ptr<IdentityFiles>> Open(const std::string& tokens,
                                                             const std::string& tenants,
                                                             Authenticator* authenticator);

  // Reads files that have changed since two calls ago but not since the last call, and returns what
  // was read. Called about every second. `all`: waits until no file changes any more and reads all
  // of them.
  std::vector<Reload> Poll(bool all = false);

 private:
  struct Source {
    WatchedFile file;
    // Hands the content to the authenticator; the number of its entries.
    std::function<absl::StatusOr<int64_t>(const std::string& text)> use;
  };
  IdentityFiles() = default;
  static Reload Load(Source& source);

  std::vector<Source> sources_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_IDENTITY_IDENTITY_FILES_H_
