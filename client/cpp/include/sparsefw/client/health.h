// Whether a server takes work: grpc.health.v1.Health over a new connection.
#ifndef SPARSEFW_CLIENT_HEALTH_H_
#define SPARSEFW_CLIENT_HEALTH_H_

#include <string>

#include "absl/status/status.h"
#include "sparsefw/client/options.h"

namespace sparsefw::client {

// Connects, asks once, with no credentials but those of TLS, and disconnects: a server whose
// old connections still work while it accepts no new one does not pass. Takes at most twice
// options.connect_timeout.
// Errors: Unavailable (NOT_SERVING)  it drains, or has lost all its devices
//         Unavailable (UNREACHABLE)  no connection, or no answer
absl::Status CheckHealth(const std::string& address, ClientOptions options = {});

}  // namespace sparsefw::client

#endif  // SPARSEFW_CLIENT_HEALTH_H_
