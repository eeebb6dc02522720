// The loss of new weights, from scratch.
//
//   ||WX - W'X||^2 = <D, D G>,   D = W - W'
//
// Source: the definition of the loss; of a mask, W' = M.W (cpu/mask_loss.h).
#ifndef SPARSEFW_CORE_SRC_LINALG_WEIGHTS_LOSS_H_
#define SPARSEFW_CORE_SRC_LINALG_WEIGHTS_LOSS_H_

#include "absl/status/statusor.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

// Shapes:  weights, updated [rows, cols], gram [cols, cols]; F32, F16, BF16 or F64
// Numeric: every product and sum in float64; G counts as (G + G^T)/2. The same
//          bits for any number of threads. Below 0 by rounding only, or where G
//          is not positive semi-definite.
// Memory:  blocks of 512 rows and columns: at most 8 * (2*512*cols + 512*512) bytes
// Threads: those of `context`.
// Cost:    2 * rows * cols^2 flops
// Errors:  Cancelled
absl::StatusOr<double> WeightsLoss(ConstMatrixView weights, ConstMatrixView updated,
                                   ConstMatrixView gram, const ParallelContext& context);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_LINALG_WEIGHTS_LOSS_H_
