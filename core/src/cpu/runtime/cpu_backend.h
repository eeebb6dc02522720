// The CPU backend: oneTBB, any CBLAS, SIMD chosen at run time.
#ifndef SPARSEFW_CORE_SRC_CPU_RUNTIME_CPU_BACKEND_H_
#define SPARSEFW_CORE_SRC_CPU_RUNTIME_CPU_BACKEND_H_

#include "sparsefw/backend.h"

namespace sparsefw {

// Lives as long as the program.
const Backend& CpuBackend();

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_CPU_RUNTIME_CPU_BACKEND_H_
