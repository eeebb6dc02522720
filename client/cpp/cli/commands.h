// One function for each command. Results go to console.out, everything else to
// console.err; ExitCodeOf the status is the program's exit code.
#ifndef SPARSEFW_CLIENT_CLI_COMMANDS_H_
#define SPARSEFW_CLIENT_CLI_COMMANDS_H_

#include "absl/status/status.h"
#include "client/cpp/cli/flags/options.h"
#include "client/cpp/cli/output/progress.h"

namespace sparsefw::cli {

absl::Status Run(const SubmitOptions& options, const Console& console);
absl::Status Run(const StatusOptions& options, const Console& console);
absl::Status Run(const WatchOptions& options, const Console& console);
absl::Status Run(const FetchOptions& options, const Console& console);
absl::Status Run(const CancelOptions& options, const Console& console);
absl::Status Run(const DeleteOptions& options, const Console& console);
absl::Status Run(const ListOptions& options, const Console& console);
absl::Status Run(const GramOptions& options, const Console& console);
absl::Status Run(const InfoOptions& options, const Console& console);
absl::Status Run(const HealthOptions& options, const Console& console);
absl::Status Run(const PrintText& text, const Console& console);

absl::Status RunCommand(const Command& command, const Console& console);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_COMMANDS_H_
