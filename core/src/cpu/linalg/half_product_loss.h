// The loss of a mask on the CPU, from scratch, by the engine's own product.
//
//   L(M) = sum_i d_i G d_i^T = sum_i sum_k d_ik (d_i H)_k,   D = W.(1 - M)
//
// H is the upper triangle of G + G^T with half of its diagonal: half the products of D G, and
// no other rounding than that of a sum. linalg/mask_loss.h says what it computes and promises;
// this is the same in less time (its BLAS has no kernel for every processor) and memory.
#ifndef SPARSEFW_CORE_SRC_CPU_LINALG_HALF_PRODUCT_LOSS_H_
#define SPARSEFW_CORE_SRC_CPU_LINALG_HALF_PRODUCT_LOSS_H_

#include "absl/status/statusor.h"
#include "core/src/linalg/scale.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Shapes:  weights [rows, cols], gram [cols, cols] of float32 or float64, mask [rows, cols]
// Numeric: products and sums in float64, the same bits for any number of threads
// Memory:  blocks of 512 rows, 8 * 512 * cols bytes, and 8 * 64 * (cols + 512) of every thread
// Cost:    about rows * cols^2 flops in float64
// Errors:  Cancelled
absl::StatusOr<double> HalfProductLoss(ConstMatrixView weights, ConstMatrixView gram,
                                       const Mask& mask, const Scale& scale,
                                       const ParallelContext& context);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_LINALG_HALF_PRODUCT_LOSS_H_
