// Names of the values that the solver's enums can take, as metrics, logs and
// messages print them. The wire has its own (proto/sparsefw/v1/job.proto), which
// tests/server/rpc/convert compares with these.
#ifndef SPARSEFW_NAMES_H_
#define SPARSEFW_NAMES_H_

#include <string_view>

#include "sparsefw/pattern.h"
#include "sparsefw/solver.h"

namespace sparsefw {

std::string_view NameOf(Method method);       // "sparsefw"
std::string_view NameOf(Pattern::Kind kind);  // "per_row"
std::string_view NameOf(StopCause cause);     // "DEADLINE"

}  // namespace sparsefw

#endif  // SPARSEFW_NAMES_H_
