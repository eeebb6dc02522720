// A stable machine-readable reason on an absl::Status, beside its message.
//
// People read the message; programs branch on the reason ("OFFSET_GAP") and on
// the metadata ("committed_size" -> "4096"). The RPC edge turns both into a
// google.rpc.ErrorInfo. docs/api.md lists every reason.
#ifndef SPARSEFW_STATUS_REASON_H_
#define SPARSEFW_STATUS_REASON_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sparsefw {

using ReasonMetadata = std::map<std::string, std::string>;

// Returns `status` with the reason attached, replacing one it had. An OK
// status is returned unchanged. Neither keys nor values may contain '\n',
// keys no '='.
absl::Status WithReason(absl::Status status, std::string_view reason,
                        const ReasonMetadata& metadata = {});

// Empty when there is none.
std::string ReasonOf(const absl::Status& status);
ReasonMetadata ReasonMetadataOf(const absl::Status& status);

}  // namespace sparsefw

#endif  // SPARSEFW_STATUS_REASON_H_
