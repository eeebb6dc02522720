// TLS and the token, from the flags of a command.
#ifndef SPARSEFW_CLIENT_CLI_CREDENTIALS_H_
#define SPARSEFW_CLIENT_CLI_CREDENTIALS_H_

#include <string>

#include "absl/status/status.h"
#include "client/cpp/cli/flags/options.h"
#include "sparsefw/client/options.h"

namespace sparsefw::cli {

// Errors: exit code 2, about a file that cannot be used. No message holds a token.
absl::Status AddCredentials(const CommonOptions& common, client::ClientOptions* options);

// The error, whose message also says for credentials that the server does not accept which flags
// they come from, for a server that cannot be reached what may help.
absl::Status WithHint(const absl::Status& status, const CommonOptions& common);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_CREDENTIALS_H_
