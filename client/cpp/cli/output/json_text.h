// JSON as it is printed.
#ifndef SPARSEFW_CLIENT_CLI_JSON_TEXT_H_
#define SPARSEFW_CLIENT_CLI_JSON_TEXT_H_

#include <string>

#include "nlohmann/json.hpp"

namespace sparsefw::cli {

// One line of ASCII: what a server or a file's name says cannot steer a terminal. Bytes that are no
// UTF-8, which JSON cannot hold, become U+FFFD.
inline std::string JsonText(const nlohmann::ordered_json& json) {
  return json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/true,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_JSON_TEXT_H_
