// Shared by the files that implement convert.h.
#ifndef SPARSEFW_SERVER_RPC_CONVERT_COMMON_H_
#define SPARSEFW_SERVER_RPC_CONVERT_COMMON_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {

inline absl::Status UnknownEnum(std::string_view field, int value) {
  return Invalid("ENUM_UNKNOWN", "%s must be one of the values of this version; got %d", field,
                 value);
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CONVERT_COMMON_H_
