// The W3C trace context of a call (https://www.w3.org/TR/trace-context/).
#ifndef SPARSEFW_CORE_SRC_BASE_TRACEPARENT_H_
#define SPARSEFW_CORE_SRC_BASE_TRACEPARENT_H_

#include <string_view>

namespace sparsefw {

// Version 00, in lower case: 00-<32 hex: trace>-<16 hex: span>-<2 hex: flags>, neither
// trace nor span all zeros.
bool IsTraceparent(std::string_view text);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_BASE_TRACEPARENT_H_
