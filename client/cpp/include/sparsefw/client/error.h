// The server's errors as absl::Status.
//
// The code is the RPC's code and the message the server's message, Printable; ReasonOf and
// ReasonMetadataOf (sparsefw/reason.h) give the google.rpc.ErrorInfo.
// docs/errors.md lists the reasons.
#ifndef SPARSEFW_CLIENT_ERROR_H_
#define SPARSEFW_CLIENT_ERROR_H_

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace grpc {
class Status;
}
namespace google::rpc {
class Status;
}

namespace sparsefw::client {

absl::Status StatusFromGrpc(const grpc::Status& status);
// The status of Job.error.
absl::Status StatusFromProto(const google::rpc::Status& status);

// The delay of google.rpc.RetryInfo, if the server asked for one.
std::optional<absl::Duration> RetryDelayOf(const absl::Status& status);

// True where the same call may succeed later without any change: UNAVAILABLE,
// a broken connection, a server that is being shut down, RESOURCE_EXHAUSTED with a retry delay.
bool IsTransient(const absl::Status& status);

// `status` with another message; code, reason and metadata stay.
absl::Status WithMessage(const absl::Status& status, std::string_view message);

}  // namespace sparsefw::client

#endif  // SPARSEFW_CLIENT_ERROR_H_
