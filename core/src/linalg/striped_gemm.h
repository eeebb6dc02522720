// Large products that end soon after a limit is reached.
#ifndef SPARSEFW_CORE_SRC_LINALG_STRIPED_GEMM_H_
#define SPARSEFW_CORE_SRC_LINALG_STRIPED_GEMM_H_

#include "absl/status/status.h"
#include "core/src/linalg/blas.h"
#include "core/src/parallel/workers.h"

namespace sparsefw::sparsegpt {

// GemmF64 a few rows at a time. A product alone looks at the stop signal only;
// between stripes, which take some 20 ms at most, the workers look at their
// deadline too.
//
// Errors: Cancelled
absl::Status StripedGemm(const GemmArgs<double>& args, cpu::Workers& workers);

}  // namespace sparsefw::sparsegpt

#endif  // SPARSEFW_CORE_SRC_LINALG_STRIPED_GEMM_H_
