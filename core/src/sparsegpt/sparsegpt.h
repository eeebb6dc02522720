// SparseGPT on one layer: sparsefw/sparsegpt.h says what it computes.
#ifndef SPARSEFW_CORE_SRC_SPARSEGPT_SPARSEGPT_H_
#define SPARSEFW_CORE_SRC_SPARSEGPT_SPARSEGPT_H_

#include "absl/status/statusor.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/backend.h"
#include "sparsefw/problem.h"
#include "sparsefw/sparsegpt.h"

namespace sparsefw::sparsegpt {

// The problem and the options are valid; saliency and warm mask are not used.
//
// Numeric: float64; the same bits for any number of threads
// Memory:  SparseGptBytes
// Cost:    (2/3 cols + rows) * cols^2 flops in products
// Errors:  Cancelled        stop signal or deadline of `context`, looked at
//                           before every piece of work of some 20 ms at most
//          InvalidArgument  G is not positive definite, whatever the damping
//                           (GRAM_NOT_POSITIVE_DEFINITE); a new weight is too
//                           large for the dtype of W (NON_FINITE)
absl::StatusOr<PrunedWeights> Prune(const Problem& problem, const SparseGptOptions& options,
                                    const ParallelContext& context);

}  // namespace sparsefw::sparsegpt

#endif  // SPARSEFW_CORE_SRC_SPARSEGPT_SPARSEGPT_H_
