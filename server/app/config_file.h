// The file of --config: a line "key = value" for each setting.
#ifndef SPARSEFW_SERVER_APP_CONFIG_FILE_H_
#define SPARSEFW_SERVER_APP_CONFIG_FILE_H_

#include <memory>

namespace CLI {
class Config;
}  // namespace CLI

namespace sparsefw::server {

// What CLI11 reads the file with. Throws CLI::ConfigError for a line that could be read in two
// ways, which names the key, the rule and the text.
std::shared_ptr<CLI::Config> ConfigFileReader();

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_CONFIG_FILE_H_
