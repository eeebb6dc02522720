// Errors of the command line in this program's words. Those of CLI11 name neither rule nor value.
#ifndef SPARSEFW_CLIENT_CLI_USAGE_ERRORS_H_
#define SPARSEFW_CLIENT_CLI_USAGE_ERRORS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace sparsefw::cli {

// On one line, without the library's full stop.
std::string OneLine(std::string text);

// Errors: a flag without its value, whose place the next flag would take; one of a single value
// that is given twice. `words` begin with the command.
absl::Status CheckValues(const CLI::App& command, const std::vector<std::string>& words);

// Reports unknown flags before missing ones: one is often the other misspelt.
absl::Status UnknownArgument(const CLI::App& command, const std::vector<std::string>& unknown);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_USAGE_ERRORS_H_
