// Links what a user sees with the lines of the server's log.
#ifndef SPARSEFW_CLIENT_CLI_TRACE_H_
#define SPARSEFW_CLIENT_CLI_TRACE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sparsefw::cli {

// The W3C trace context of all calls of this run: `given` (TRACEPARENT of the
// environment) where it is one, else a new one.
std::string TraceparentFor(std::string_view given);

// Marks an error that a server returned with the trace that its log has.
absl::Status WithTrace(absl::Status status, std::string_view traceparent);

// " [trace <32 hex>]" of a marked error, else empty.
std::string TraceNote(const absl::Status& status);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_TRACE_H_
