// The layout of --help: groups, aligned columns, lines of at most 80 columns.
#ifndef SPARSEFW_CLIENT_CLI_HELP_H_
#define SPARSEFW_CLIENT_CLI_HELP_H_

#include <memory>
#include <string>

namespace CLI {
class App;
class FormatterBase;
}  // namespace CLI

namespace sparsefw::cli {

// Wraps descriptions at word boundaries and prints groups in the order of
// their first flags, the one that holds --help last.
std::shared_ptr<CLI::FormatterBase> HelpFormatter();

// Every flag of `app` that has no group yet joins `group`; --help stays.
void GroupFlags(CLI::App& app, const std::string& group);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_HELP_H_
