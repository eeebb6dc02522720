// Whether a spool and a catalog belong together.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_SPOOL_MATCH_H_
#define SPARSEFW_SERVER_TENSORS_STORE_SPOOL_MATCH_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace sparsefw::server {

// Tensors that are deleted at once.
inline constexpr size_t kDeletedAtOnce = 32;

// The findings of a start in the folder and in the catalog.
struct SpoolMatch {
  std::string spool;         // path
  std::string owner;         // the store that the spool belongs to; empty: none has used it yet
  std::string store;         // of the catalog
  int64_t kept = 0;          // records with their files
  int64_t orphans = 0;       // files that no record names; parts do not count
  int64_t orphan_bytes = 0;  // of these
  int64_t missing = 0;  // records of tensors without their files, but for those marked as deleted
};

// An emptied database, one of another server and a spool that is not mounted look like a
// start on nothing, and all files or records would go. A kill leaves none of them; a power failure
// may take back the names of files that were being deleted.
// Errors: FailedPrecondition (SPOOL_MISMATCH)  the start would remove what belongs to another
//         store, or more than it keeps
absl::Status CheckMatch(const SpoolMatch& match);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_SPOOL_MATCH_H_
