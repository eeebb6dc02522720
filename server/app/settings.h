// The configuration as it is in force, flag by flag, for the log and for clients.
#ifndef SPARSEFW_SERVER_APP_SETTINGS_H_
#define SPARSEFW_SERVER_APP_SETTINGS_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/app/observe/logging.h"
#include "sparsefw/v1/prune_service.pb.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace sparsefw::server {

// A flag that is answered in place of a start.
bool IsQuestion(std::string_view flag);

// Who may see the value of a flag.
enum class Audience {
  kEveryClient,  // limits, times, devices
  kOperator,     // files, folders and addresses: the log only
  kUndecided,    // a flag that AudienceOf does not know; not shown to clients
};
Audience AudienceOf(std::string_view flag);

// Every option of a parsed command line but --help, --version and --config. `arguments` are those
// of the command line; `environment` gives the value of the variable of a flag, or "".
std::vector<v1::Setting> SettingsOf(
    const CLI::App& app, const std::vector<std::string>& arguments,
    const std::function<std::string(const CLI::Option&)>& environment);

// The settings that every client may see.
std::vector<v1::Setting> SettingsForClients(const std::vector<v1::Setting>& settings);

// A line `setting` for each. No flag holds a secret: keys and tokens are in files, of
// which the line has the path.
void LogSettings(const std::vector<v1::Setting>& settings, Logger* logger);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_SETTINGS_H_
