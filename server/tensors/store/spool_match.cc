#include "server/tensors/store/spool_match.h"

#include <algorithm>

#include "server/tensors/catalog/tensor_catalog.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

// The most that a power failure leaves of deletions on several threads.
constexpr auto kMostOfAPowerFailure = static_cast<int64_t>(2 * kDeletedAtOnce);

// Why the start has to be asked for; empty: it has not.
std::string Doubt(const SpoolMatch& match) {
  // Files that a server with --store memory has left are of no use to anybody.
  const bool forgotten = match.owner == kMemoryStore;
  const int64_t removed = std::max(forgotten ? 0 : match.orphans, match.missing);
  if (removed == 0) return "";
  if (match.owner.empty() || forgotten) {
    return removed > match.kept ? "the spool has not been used with this database before" : "";
  }
  if (match.owner != match.store) {
    return match.store == kMemoryStore ? "the spool is that of a database"
                                       : "the spool is that of another database";
  }
  const bool more_than_kept = removed > std::max(match.kept, kMostOfAPowerFailure);
  return more_than_kept ? "the start would remove more than it keeps" : "";
}

}  // namespace

absl::Status CheckMatch(const SpoolMatch& match) {
  const std::string doubt = Doubt(match);
  if (doubt.empty()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "SPOOL_MISMATCH",
                "%s: %s: %d tensors and uploads are in both, %d files of %d bytes that no record "
                "names would be removed, and %d records whose files are missing; put the right "
                "database and spool together (a restored backup, a mounted disk), or start with "
                "--discard-unmatched to remove them",
                match.spool, doubt, match.kept, match.orphans, match.orphan_bytes, match.missing);
}

}  // namespace sparsefw::server
