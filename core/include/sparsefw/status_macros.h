// Two macros that Debian's Abseil lacks.
#ifndef SPARSEFW_STATUS_MACROS_H_
#define SPARSEFW_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define SPARSEFW_RETURN_IF_ERROR(expression)                                  \
  do {                                                                        \
    if (::absl::Status sparsefw_status = (expression); !sparsefw_status.ok()) \
      return sparsefw_status;                                                 \
  } while (false)

#define SPARSEFW_MACRO_CONCAT_INNER(a, b) a##b
#define SPARSEFW_MACRO_CONCAT(a, b) SPARSEFW_MACRO_CONCAT_INNER(a, b)

// SPARSEFW_ASSIGN_OR_RETURN(auto value, Compute());
#define SPARSEFW_ASSIGN_OR_RETURN(declaration, expression)                                   \
  SPARSEFW_ASSIGN_OR_RETURN_IMPL(SPARSEFW_MACRO_CONCAT(sparsefw_or_, __LINE__), declaration, \
                                 expression)
#define SPARSEFW_ASSIGN_OR_RETURN_IMPL(temporary, declaration, expression) \
  auto temporary = (expression);                                           \
  if (!temporary.ok()) return std::move(temporary).status();               \
  declaration = *std::move(temporary)

#endif  // SPARSEFW_STATUS_MACROS_H_
