// Named places at which tests kill or delay the server, or take its memory.
#ifndef SPARSEFW_SERVER_FAILPOINT_FAILPOINT_H_
#define SPARSEFW_SERVER_FAILPOINT_FAILPOINT_H_

#include <string_view>

namespace sparsefw::server {

// Empty in the programs that users run, which link failpoint_off.cc.
// Programs of the tests link failpoint_on.cc instead. Thread-safe.
//
// Names are literals, each used once, with the subsystem in front:
// "upload.committed". Put them only where a call is rare beside what it does: on
// commits and state changes, not in loops over bytes.
void Failpoint(std::string_view name);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_FAILPOINT_FAILPOINT_H_
