#include <algorithm>

#include "absl/strings/str_format.h"
#include "server/tensors/uploads/upload_content.h"

namespace sparsefw::server {

absl::StatusOr<AppendRange> PlanAppend(int64_t offset, int64_t count, int64_t committed,
                                       int64_t limit, std::string_view unit) {
  if (offset < 0) {
    return Invalid("OFFSET_INVALID", "the offset must be at least 0 %s; got %d", unit, offset);
  }
  // The sum offset + count may be beyond int64.
  if (offset > limit || count > limit - offset) {
    return Refuse(absl::StatusCode::kOutOfRange, "OFFSET_OUT_OF_RANGE",
                  "a chunk must end within %d %s; got %d of them at offset %d", limit, unit, count,
                  offset);
  }
  if (offset > committed) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "OFFSET_GAP",
                  "a chunk must begin at or before the %d %s committed so far; got offset "
                  "%d",
                  committed, unit, offset);
  }
  const int64_t skip = std::min(committed - offset, count);
  return AppendRange{skip, count - skip};
}

}  // namespace sparsefw::server
