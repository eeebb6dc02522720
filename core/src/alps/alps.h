// ALPS on one layer: sparsefw/alps.h says what it computes.
#ifndef SPARSEFW_CORE_SRC_ALPS_ALPS_H_
#define SPARSEFW_CORE_SRC_ALPS_ALPS_H_

#include "absl/status/statusor.h"
#include "core/src/alps/penalty.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"
#include "sparsefw/problem.h"

namespace sparsefw::alps {

struct PrunedLayer {
  Mask mask;              // meets the pattern exactly
  Matrix<float> weights;  // [rows, cols]: values of the dtype of W; 0 where pruned
  int64_t iterations = 0;
};

// ALPS itself: 300 iterations in float64. Fewer in float32 give a start for another search.
struct Effort {
  double settled = 0;   // above 0: ends as soon as so few entries change, as a share of those kept
  bool single = false;  // float32 but for the factors of the inverses
  int64_t steps = 0;    // on the support, preconditioned; 0: those of ALPS
};

// The problem is valid; saliency and warm mask are not used.
//
// Numeric: float64 unless `single`; the same bits for any number of threads
// Memory:  AlpsBytes
// Cost:    2 rows cols^2 flops an iteration, 8/3 cols^3 for every rho
// Errors:  Cancelled        stop signal or deadline of `context`
//          InvalidArgument  G is not positive semi-definite (GRAM_NOT_POSITIVE_DEFINITE); a
//                           new weight is too large for the dtype of W (NON_FINITE)
absl::StatusOr<PrunedLayer> Prune(const Problem& problem, const Effort& effort,
                                  const ParallelContext& context);

}  // namespace sparsefw::alps

#endif  // SPARSEFW_CORE_SRC_ALPS_ALPS_H_
