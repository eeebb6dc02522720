// The loss of a mask or of other weights on the CPU, from scratch.
//
//   L(M) = <D, D G> = sum_jk (D^T D)_jk G_jk,   D = W.(1 - M)
//
// The second form needs half the products of the first, since D^T D is
// symmetric, and reads G once.
#ifndef SPARSEFW_CORE_SRC_LINALG_MASK_LOSS_H_
#define SPARSEFW_CORE_SRC_LINALG_MASK_LOSS_H_

#include "absl/status/statusor.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

// Shapes:  weights [rows, cols], gram [cols, cols], mask [rows, cols]
// Numeric: every product and sum in float64, `scale` only keeps it in range; the
//          same bits for any number of threads. Below 0 by rounding only, or where G
//          is not positive semi-definite.
// Memory:  blocks of 512 rows: at most 8 * (512*cols + 512*cols + 512*512) bytes
// Cost:    about rows * cols^2 flops in float64
// Errors:  Cancelled
absl::StatusOr<double> MaskLoss(ConstMatrixView weights, ConstMatrixView gram, const Mask& mask,
                                const Scale& scale, const ParallelContext& context);

// ||(W - kept) X||^2: the same with D = W - kept, kept [rows, cols].
absl::StatusOr<double> LossOfWeights(ConstMatrixView weights, ConstMatrixView gram,
                                     const Matrix<float>& kept, const Scale& scale,
                                     const ParallelContext& context);

// Bytes of the scratch of either, for the estimate of an engine's memory.
int64_t MaskLossBytes(int64_t rows, int64_t cols);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_LINALG_MASK_LOSS_H_
