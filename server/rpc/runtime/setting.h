// A setting of the server as it is in force.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_SETTING_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_SETTING_H_

#include <string>

namespace sparsefw::server {

struct Setting {
  enum class Source { kDefault, kFile, kEnvironment, kFlag };
  std::string name;   // of the flag, without dashes in front
  std::string value;  // as it was given
  Source source = Source::kDefault;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_SETTING_H_
