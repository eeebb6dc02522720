#include "server/failpoint/failpoint.h"

namespace sparsefw::server {

void Failpoint(std::string_view /*name*/) {}

}  // namespace sparsefw::server
