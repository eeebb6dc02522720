// A stable machine-readable reason on an absl::Status, beside its message.
//
// People read the message; programs branch on the reason ("OFFSET_GAP") and on
// the metadata ("committed_size" -> "4096"). The RPC edge turns both into a
// google.rpc.ErrorInfo. sparsefw/reason.h lists every reason.
#ifndef SPARSEFW_STATUS_REASON_H_
#define SPARSEFW_STATUS_REASON_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "sparsefw/reason.h"

namespace sparsefw {

using ReasonMetadata = std::map<std::string, std::string>;

// Returns `status` with the reason attached, replacing one it had. An OK
// status is returned unchanged. Neither keys nor values may contain '\n',
// keys no '='.
absl::Status WithReason(absl::Status status, Reason reason, const ReasonMetadata& metadata = {});
// The same with a reason that came from elsewhere: another status, the wire.
absl::Status WithReasonText(absl::Status status, std::string_view reason,
                            const ReasonMetadata& metadata = {});

// An error with a reason and a formatted message, which names the thing, the
// rule and the value.
template <typename... Args>
absl::Status Refuse(absl::StatusCode code, Reason reason, const absl::FormatSpec<Args...>& format,
                    const Args&... args) {
  return WithReason(absl::Status(code, absl::StrFormat(format, args...)), reason);
}
// The same with InvalidArgument.
template <typename... Args>
absl::Status Invalid(Reason reason, const absl::FormatSpec<Args...>& format, const Args&... args) {
  return Refuse(absl::StatusCode::kInvalidArgument, reason, format, args...);
}

// `status` with one more entry of metadata; reason and other entries stay. An
// OK status is returned unchanged.
absl::Status WithMetadata(absl::Status status, std::string_view key, std::string_view value);

bool HasReason(const absl::Status& status, Reason reason);
// Empty when there is none.
std::string ReasonOf(const absl::Status& status);
ReasonMetadata ReasonMetadataOf(const absl::Status& status);

}  // namespace sparsefw

#endif  // SPARSEFW_STATUS_REASON_H_
