// Names of the values that the solver's enums can take, as metrics, logs and
// messages print them. Enums on the wire and in the durable record are matched by these names, in
// capitals (server/fields): a name that changes here changes there as well.
#ifndef SPARSEFW_NAMES_H_
#define SPARSEFW_NAMES_H_

#include <string_view>

#include "sparsefw/pattern.h"
#include "sparsefw/preset.h"
#include "sparsefw/saliency.h"
#include "sparsefw/solver.h"

namespace sparsefw {

// "other" for a number that is none of the enum's.
std::string_view NameOf(Method method);               // "sparsefw"
std::string_view NameOf(SaliencyMethod method);       // "wanda"
std::string_view NameOf(StepRule rule);               // "line_search"
std::string_view NameOf(ProductPrecision precision);  // "fp32"
std::string_view NameOf(Preset preset);               // "balanced"
std::string_view NameOf(Pattern::Kind kind);          // "per_row"
std::string_view NameOf(StopCause cause);             // "DEADLINE"

}  // namespace sparsefw

#endif  // SPARSEFW_NAMES_H_
