// The one place where an absl::Status becomes something of the wire.
#ifndef SPARSEFW_SERVER_RPC_CONVERT_STATUS_CONVERTER_H_
#define SPARSEFW_SERVER_RPC_CONVERT_STATUS_CONVERTER_H_

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

namespace sparsefw::server {

// Codes are identical. The message is cut at 1 KiB (on a character). Details
// carry google.rpc.ErrorInfo {reason, domain "sparsefw", metadata} and, when
// the metadata has retry_delay_ms, google.rpc.RetryInfo. A status without a
// reason of its own gets the name of its code as the reason.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The same content, as a message (Job.error).
google::rpc::Status ToRpcStatus(const absl::Status& status);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CONVERT_STATUS_CONVERTER_H_
