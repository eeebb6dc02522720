#include "server/failpoint/failpoint.h"

namespace sparsefw::server {

void Failpoint(std::string_view /*name*/) {}
absl::Status FailpointStatus(std::string_view /*name*/) { return absl::OkStatus(); }

}  // namespace sparsefw::server
