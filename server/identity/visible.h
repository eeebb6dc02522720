// Who may see what.
#ifndef SPARSEFW_SERVER_IDENTITY_VISIBLE_H_
#define SPARSEFW_SERVER_IDENTITY_VISIBLE_H_

#include <string_view>

#include "server/identity/owner.h"

namespace sparsefw::server {

// False: the caller is to be told exactly what it is told of a name that does not
// exist. Every handler that takes a name asks this of what it finds.
inline bool Visible(std::string_view tenant, const Owner& owner) { return owner.tenant == tenant; }

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_IDENTITY_VISIBLE_H_
