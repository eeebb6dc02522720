// The reference backend: dense, float64, obvious. The oracle of the others.
#ifndef SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_BACKEND_H_
#define SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_BACKEND_H_

#include "sparsefw/backend.h"

namespace sparsefw {

// Lives as long as the program.
const Backend& ReferenceBackend();

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_BACKEND_H_
